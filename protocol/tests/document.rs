//! PROTOCOL.md and the types agree.

#[cfg(test)]
mod document {
    use std::collections::BTreeSet;

    use procd_protocol::v1::{self, Call, Method};
    use procd_protocol::{ErrorCode, FieldFault, Word, limits};
    use serde_json::value::RawValue;

    const PROSE: &str = include_str!("../PROTOCOL.md");

    /// The cells of every table row of a text.
    fn rows(text: &'static str) -> Vec<Vec<&'static str>> {
        let is_row = |line: &&str| line.starts_with("| ") && line.ends_with('|');
        let cells = |line: &'static str| line.trim_matches('|').split(" | ").map(str::trim);
        text.lines().filter(is_row).map(|line| cells(line).collect()).collect()
    }

    fn section(title: &str) -> &'static str {
        let (_, rest) = PROSE.split_once(&format!("\n{title}\n")).expect(title);
        rest.find("\n##").map_or(rest, |end| &rest[..end])
    }

    #[test]
    fn the_limits_of_the_page_are_those_of_the_code() {
        let rows = rows(section("## Limits"));
        let told: Vec<_> = rows.iter().skip(1).filter(|row| !row[0].starts_with("---")).collect();
        let wanted: Vec<_> = limits::TABLE
            .iter()
            .map(|l| [format!("`{}`", l.name), l.value.to_string(), l.unit.into(), l.reason.into()])
            .collect();
        assert_eq!(told.len(), wanted.len());
        for (told, wanted) in told.iter().zip(&wanted) {
            assert_eq!(told.as_slice(), wanted.as_slice());
        }
    }

    #[test]
    fn every_error_code_is_explained_with_its_retryability() {
        let rows = rows(section("## Errors"));
        for &code in ErrorCode::ALL {
            let name = format!("`{code}`");
            let row = rows.iter().find(|row| row[0] == name && row.len() == 3).expect(&name);
            let wanted = match (code.is_retryable(None), code.is_retryable(Some("storage"))) {
                (true, _) => "yes",
                (false, true) => "only for the cause `storage`",
                (false, false) => "no",
            };
            assert_eq!(row[2], wanted, "{code}");
        }
    }

    /// Parameters of every method in force: those that must be there, and the others.
    const PARAMETERS: &[(Method, &[&str], &[&str])] = &[
        (Method::Hello, v1::HelloParams::REQUIRED, v1::HelloParams::OPTIONAL),
        (Method::SessionOpen, v1::SessionOpenParams::REQUIRED, v1::SessionOpenParams::OPTIONAL),
        (
            Method::SessionAttach,
            v1::SessionAttachParams::REQUIRED,
            v1::SessionAttachParams::OPTIONAL,
        ),
        (Method::SessionClose, v1::SessionCloseParams::REQUIRED, v1::SessionCloseParams::OPTIONAL),
        (Method::ProcessStart, v1::StartParams::REQUIRED, v1::StartParams::OPTIONAL),
        (Method::ProcessOutput, v1::OutputParams::REQUIRED, v1::OutputParams::OPTIONAL),
        (Method::ProcessSearch, v1::SearchParams::REQUIRED, v1::SearchParams::OPTIONAL),
        (Method::ProcessExport, v1::ExportParams::REQUIRED, v1::ExportParams::OPTIONAL),
        (Method::ProcessInput, v1::InputParams::REQUIRED, v1::InputParams::OPTIONAL),
        (Method::SessionStopAll, v1::StopAllParams::REQUIRED, v1::StopAllParams::OPTIONAL),
        (Method::SessionList, v1::SessionListParams::REQUIRED, v1::SessionListParams::OPTIONAL),
        (Method::ProcessSignal, v1::SignalParams::REQUIRED, v1::SignalParams::OPTIONAL),
        (Method::ProcessStop, v1::StopParams::REQUIRED, v1::StopParams::OPTIONAL),
        (Method::ProcessInspect, v1::InspectParams::REQUIRED, v1::InspectParams::OPTIONAL),
        (Method::ProcessList, v1::ListParams::REQUIRED, v1::ListParams::OPTIONAL),
        (Method::ProcessRemove, v1::RemoveParams::REQUIRED, v1::RemoveParams::OPTIONAL),
        (Method::ProcessPin, v1::PinParams::REQUIRED, v1::PinParams::OPTIONAL),
        (Method::EventsSubscribe, v1::SubscribeParams::REQUIRED, v1::SubscribeParams::OPTIONAL),
        (Method::EventsAck, v1::EventsAckParams::REQUIRED, v1::EventsAckParams::OPTIONAL),
        (
            Method::EventsUnsubscribe,
            v1::UnsubscribeParams::REQUIRED,
            v1::UnsubscribeParams::OPTIONAL,
        ),
        (
            Method::NotificationsAck,
            v1::NotificationsAckParams::REQUIRED,
            v1::NotificationsAckParams::OPTIONAL,
        ),
        (Method::LeaseAcquire, v1::LeaseAcquireParams::REQUIRED, v1::LeaseAcquireParams::OPTIONAL),
        (Method::LeaseRelease, v1::LeaseReleaseParams::REQUIRED, v1::LeaseReleaseParams::OPTIONAL),
        (
            Method::OperatorAttach,
            v1::OperatorAttachParams::REQUIRED,
            v1::OperatorAttachParams::OPTIONAL,
        ),
        (Method::DaemonStatus, v1::StatusParams::REQUIRED, v1::StatusParams::OPTIONAL),
        (Method::DaemonMetrics, v1::MetricsParams::REQUIRED, v1::MetricsParams::OPTIONAL),
        (Method::DaemonReload, v1::ReloadParams::REQUIRED, v1::ReloadParams::OPTIONAL),
        (Method::DaemonShutdown, v1::ShutdownParams::REQUIRED, v1::ShutdownParams::OPTIONAL),
    ];

    #[test]
    fn every_parameter_is_in_the_table_of_its_method_and_no_other() {
        assert_eq!(PARAMETERS.len(), v1::IN_FORCE.len());
        for (method, required, optional) in PARAMETERS {
            let rows = rows(section(&format!("### `{method}`")));
            let told = rows.iter().filter(|row| row[0].starts_with('`'));
            let told: BTreeSet<_> = told.map(|row| (row[0], row.last() == Some(&"must"))).collect();
            let names = |names: &'static [&str], must| {
                // `for` is no name that Rust lets a field have.
                let of_wire = |name: &'static str| if name == "request" { "for" } else { name };
                names.iter().map(move |name| (format!("`{}`", of_wire(name)), must))
            };
            let wanted: BTreeSet<_> = names(required, true).chain(names(optional, false)).collect();
            let told: BTreeSet<_> = told.into_iter().map(|(n, m)| (n.to_owned(), m)).collect();
            assert_eq!(told, wanted, "{method}");
        }
    }

    /// A method, what its request has beside, and parameters with a good value each.
    type Later = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

    /// A good value of every parameter that is not in force, in a request that is right but for it.
    const LATER: &[Later] = &[];
    #[test]
    fn every_parameter_of_a_later_version_is_refused_by_name_and_marked() {
        let mut refused = BTreeSet::new();
        for (method, base, fields) in LATER {
            for (field, value) in *fields {
                let comma = if base.is_empty() { "" } else { "," };
                let params = format!(r#"{{{base}{comma}"{field}":{value}}}"#);
                let raw = RawValue::from_string(params.clone()).expect("json");
                let error = Call::parse(method, Some(&raw)).expect_err(&params);
                assert_eq!((error.field.as_str(), error.fault), (*field, FieldFault::Unsupported));
                assert!(error.message.contains("not supported yet"), "{error}");
                refused.insert(((*method).to_owned(), (*field).to_owned()));
            }
        }
        let mut marked = BTreeSet::new();
        for method in v1::IN_FORCE {
            for row in rows(section(&format!("### `{method}`"))) {
                let name = row[0].trim_matches('`').to_owned();
                if row.last() == Some(&"later") {
                    marked.insert((method.to_string(), name));
                }
            }
        }
        assert_eq!(marked, refused);
    }

    #[test]
    fn every_method_that_is_not_in_force_is_named_as_such() {
        let methods = section("## Methods");
        for method in Method::ALL.iter().filter(|method| !v1::IN_FORCE.contains(method)) {
            assert!(methods.contains(&format!("`{method}`")), "{method}");
        }
    }
}
