//! The slow model: characters first, then one state machine over them that keeps what is open aside. Shares no code with the
//! real thing.

/// What an output becomes, by the raw position of each piece.
pub(crate) struct Model {
    pieces: Vec<(usize, String)>,
}

enum Open {
    Nothing,
    Escape { at: usize },
    Body { at: usize, kind: char, body: Vec<(usize, Option<char>)> },
}

impl Model {
    /// - `gap`: bytes before the first were lost.
    pub(crate) fn of(bytes: &[u8], gap: bool) -> Self {
        let orphans =
            if gap { bytes.iter().take(3).take_while(|b| **b & 0xc0 == 0x80).count() } else { 0 };
        let mut model = Self { pieces: Vec::new() };
        let mut open = Open::Nothing;
        for (at, character) in characters(bytes) {
            if at >= orphans {
                open = model.step(open, at, character);
            }
        }
        model.flush(open);
        model
    }

    /// The safe text of everything from `cursor` on.
    pub(crate) fn from(&self, cursor: usize) -> String {
        self.pieces.iter().filter(|(at, _)| *at >= cursor).map(|(_, text)| text.as_str()).collect()
    }

    fn step(&mut self, open: Open, at: usize, character: Option<char>) -> Open {
        let too_long = matches!(open, Open::Body { at: begun, .. } if at - begun >= 4096);
        let open = if too_long { self.flush(open) } else { open };
        match character {
            Some('\u{1b}') => return Open::Escape { at },
            Some(c @ '\u{80}'..='\u{9f}') => {
                return opened(at, char::from(u8::try_from(c).unwrap() - 0x40));
            }
            _ => {}
        }
        match open {
            Open::Nothing => {
                self.emit(at, character);
                Open::Nothing
            }
            Open::Escape { at: begun } => match character {
                Some(c @ ' '..='~') => opened(begun, c),
                _ => {
                    self.emit(at, character);
                    Open::Nothing
                }
            },
            Open::Body { at: begun, kind, mut body } => {
                body.push((at, character));
                match fate(kind, character) {
                    Fate::GoesOn => Open::Body { at: begun, kind, body },
                    Fate::Done => Open::Nothing,
                    Fate::Broken => self.flush(Open::Body { at: begun, kind, body }),
                }
            }
        }
    }

    fn flush(&mut self, open: Open) -> Open {
        if let Open::Body { body, .. } = open {
            for (at, character) in body {
                self.emit(at, character);
            }
        }
        Open::Nothing
    }

    fn emit(&mut self, at: usize, character: Option<char>) {
        let text = match character {
            None | Some('\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => "\u{fffd}".to_owned(),
            Some(c @ ('\t' | '\n' | '\r')) => c.to_string(),
            Some(c) if c.is_control() => return,
            Some(c) => c.to_string(),
        };
        self.pieces.push((at, text));
    }
}

enum Fate {
    GoesOn,
    Done,
    Broken,
}

fn opened(at: usize, kind: char) -> Open {
    if matches!(kind, '[' | ']' | 'P' | 'X' | '^' | '_' | ' '..='/') {
        Open::Body { at, kind, body: Vec::new() }
    } else {
        Open::Nothing
    }
}

fn fate(kind: char, character: Option<char>) -> Fate {
    match (kind, character) {
        ('[', Some(' '..='?')) | (' '..='/', Some(' '..='/')) => Fate::GoesOn,
        ('[', Some('@'..='~')) | (' '..='/', Some('0'..='~')) | (']', Some('\u{7}')) => Fate::Done,
        ('[' | ' '..='/', _) => Fate::Broken,
        _ => Fate::GoesOn,
    }
}

fn characters(bytes: &[u8]) -> Vec<(usize, Option<char>)> {
    let mut found = Vec::new();
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        found.extend(chunk.valid().char_indices().map(|(index, c)| (at + index, Some(c))));
        at += chunk.valid().len();
        found.extend((0..chunk.invalid().len()).map(|index| (at + index, None)));
        at += chunk.invalid().len();
    }
    found
}
