//! The daemon dies at its named points, and at random moments: nothing that was said is lost, and nothing happens twice.
//! A fixed sample; `cargo xtask faults` does all points and 500 moments.

use procd_tests::{
    Tier,
    faults::{self, points, seed::Seed},
};

/// The steps on which the promises rest.
const SAMPLE: &[&str] = &[
    "end-after-append",
    "end-before-append",
    "end-durable",
    "file-before-rename",
    "log-after-sync",
    "log-before-sync",
    "manifest-durable",
    "part-before-remove",
    "quarantine-before-reason",
    "removal-durable",
    "restore-taken-over",
    "seal-durable",
    "session-before-append",
    "snapshot-durable",
    "spawn-requested",
    "start-after-append",
    "start-durable",
];

#[test]
fn a_crash_at_a_point_loses_nothing_and_doubles_nothing() {
    if procd_tests::namespace::has_run_inside(
        module_path!(),
        "a_crash_at_a_point_loses_nothing_and_doubles_nothing",
    ) {
        return;
    }
    let known = points::all();
    let tiers: Vec<Tier> =
        [Tier::Cgroup, Tier::Shim].into_iter().filter(|tier| tier.is_here()).collect();
    for (count, point) in SAMPLE.iter().enumerate() {
        assert!(known.contains(*point), "there is no point {point}");
        let tier = tiers[count % tiers.len()];
        println!("{point}, {tier:?}");
        assert!(faults::crash_at(tier, point, 1, &mut Seed(5)), "no work reaches {point}");
    }
}

both_tiers_inside! {
    fn a_kill_at_any_moment_loses_nothing_and_doubles_nothing(tier) {
        faults::kill_at_random(tier, 4, &mut Seed(11));
    }
}

#[test]
fn every_point_belongs_to_a_phase() {
    for point in points::all() {
        assert_ne!(points::phase(&point), "none", "{point}");
    }
}
