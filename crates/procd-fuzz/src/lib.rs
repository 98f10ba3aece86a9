//! A fuzzer that runs within one process on the stable toolchain. Inputs are changed from a corpus;
//! one that makes a target say something new is kept, so that the corpus grows towards what is
//! behind the first checks. No clock and no randomness but the seed: a run can be repeated.
#![forbid(unsafe_code)]

mod corpus;
mod mutate;
pub mod targets;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use mutate::Mutator;
use targets::Target;

/// Inputs that are kept at most, a count.
const CORPUS_MAX: usize = 20_000;
/// Bytes of an input at most.
pub const INPUT_BYTES_MAX: usize = 16 * 1024;

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Inputs that were tried.
    pub executions: u64,
    /// Inputs that were kept, the first ones included.
    pub corpus: usize,
    /// The input that broke the target, if one did.
    pub crash: Option<Vec<u8>>,
}

/// Feeds a target so many times, the whole corpus as it is first.
#[must_use]
pub fn run(target: &Target, executions: u64, seed: u64) -> Outcome {
    let mut mutator = Mutator::new(seed, target.words);
    let mut corpus = (target.corpus)();
    let mut known = HashSet::new();
    let mut outcome = Outcome::default();
    for input in &corpus {
        match said(target, input) {
            Some(signature) => drop(known.insert(signature)),
            None => return Outcome { crash: Some(input.clone()), ..outcome },
        }
    }
    while outcome.executions < executions {
        outcome.executions += 1;
        let mut input = mutator.change(&corpus);
        if mutator.is_heads() {
            (target.repair)(&mut input);
        }
        match said(target, &input) {
            Some(signature) => {
                if corpus.len() < CORPUS_MAX && known.insert(signature) {
                    corpus.push(input);
                }
            }
            None => {
                outcome.crash = Some(input);
                break;
            }
        }
    }
    outcome.corpus = corpus.len();
    outcome
}

/// What the target says of an input, numbers left out; `None` when it panics.
fn said(target: &Target, input: &[u8]) -> Option<u64> {
    let said = catch_unwind(AssertUnwindSafe(|| (target.try_input)(input))).ok()?;
    let mut hasher = DefaultHasher::new();
    for byte in said.bytes().filter(|byte| !byte.is_ascii_digit()).take(256) {
        byte.hash(&mut hasher);
    }
    Some(hasher.finish())
}
