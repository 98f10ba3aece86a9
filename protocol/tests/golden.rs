//! The frames of `golden/` are read and written back alike for ever: lines are only added. Each
//! file holds pairs: a request, then a reply to it.

#[cfg(test)]
mod frames {
    use std::collections::BTreeSet;
    use std::path::Path;

    use procd_protocol::envelope::{self, ErrorReply, Incoming, Received, RequestOut, ResultReply};
    use procd_protocol::v1::{self, Call, Method, Params};
    use procd_protocol::{RequestId, field};
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    fn lines(name: &str) -> Vec<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let text = std::fs::read_to_string(&path).expect("a golden file");
        text.lines().map(str::to_owned).collect()
    }

    fn file_of(method: Method) -> String {
        format!("{}.jsonl", method.to_string().replace('/', "_"))
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).expect("json")
    }

    /// Writes a request and its typed reply again.
    fn rewritten<P: Params>(id: RequestId, params: &P, reply: &str) -> (String, String) {
        rewritten_as::<P, P::Result>(id, params, reply)
    }

    /// The same with a result of another type.
    fn rewritten_as<P: Params, R: Serialize + DeserializeOwned>(
        id: RequestId,
        params: &P,
        reply: &str,
    ) -> (String, String) {
        let method = P::METHOD.to_string();
        let request = RequestOut { id, method: &method, params, trace: None };
        let request = serde_json::to_string(&request).expect("a request");
        let reply = match envelope::parse_received(reply.as_bytes()).expect("a reply") {
            Received::Reply { id: Some(id), outcome: Ok(raw) } => {
                let result: R = serde_json::from_str(raw.get()).expect("a result");
                serde_json::to_string(&ResultReply { id, result: &result, trace: None })
            }
            Received::Reply { id: id @ Some(_), outcome: Err(error) } => {
                serde_json::to_string(&ErrorReply { id, error: &error, trace: None })
            }
            notice @ (Received::Notice { .. } | Received::Reply { id: None, .. }) => {
                panic!("no reply: {notice:?}")
            }
        };
        (request, reply.expect("a reply"))
    }

    fn check_pair(request: &str, reply: &str) {
        let Ok(Incoming::Request(parsed)) = envelope::parse_incoming(request.as_bytes()) else {
            panic!("no request: {request}")
        };
        let id = parsed.id;
        let (request_again, reply_again) = match Call::parse(&parsed.method, parsed.params) {
            Ok(Call::Hello(p)) => rewritten(id, &*p, reply),
            Ok(Call::SessionOpen(p)) => rewritten(id, &*p, reply),
            Ok(Call::SessionAttach(p)) => rewritten(id, &*p, reply),
            Ok(Call::SessionClose(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessStart(p)) if p.dry_run == Some(true) => {
                rewritten_as::<_, v1::PlanResult>(id, &*p, reply)
            }
            Ok(Call::ProcessStart(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessOutput(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessSearch(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessExport(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessInput(p)) => rewritten(id, &*p, reply),
            Ok(Call::SessionStopAll(p)) => rewritten(id, &*p, reply),
            Ok(Call::SessionList(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessSignal(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessStop(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessInspect(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessList(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessRemove(p)) => rewritten(id, &*p, reply),
            Ok(Call::ProcessPin(p)) => rewritten(id, &*p, reply),
            Ok(Call::EventsSubscribe(p)) => rewritten(id, &*p, reply),
            Ok(Call::EventsAck(p)) => rewritten(id, &*p, reply),
            Ok(Call::EventsUnsubscribe(p)) => rewritten(id, &*p, reply),
            Ok(Call::NotificationsAck(p)) => rewritten(id, &*p, reply),
            Ok(Call::LeaseAcquire(p)) => rewritten(id, &*p, reply),
            Ok(Call::LeaseRelease(p)) => rewritten(id, &*p, reply),
            Ok(Call::OperatorAttach(p)) => rewritten(id, &*p, reply),
            Ok(Call::DaemonStatus(p)) => rewritten(id, &*p, reply),
            Ok(Call::DaemonMetrics(p)) => rewritten(id, &*p, reply),
            Ok(Call::DaemonReload(p)) => rewritten(id, &*p, reply),
            Ok(Call::DaemonShutdown(p)) => rewritten(id, &*p, reply),
            Err(error) => panic!("{request}: {error}"),
        };
        assert_eq!(value(&request_again), value(request));
        assert_eq!(value(&reply_again), value(reply));
    }

    #[test]
    fn every_method_in_force_has_golden_frames_that_come_back_alike() {
        for method in v1::IN_FORCE {
            let lines = lines(&file_of(*method));
            assert!(lines.len() >= 2 && lines.len().is_multiple_of(2), "{method}");
            for pair in lines.chunks(2) {
                check_pair(&pair[0], &pair[1]);
            }
        }
    }

    /// Every parameter that a request may have, those of its parts included, is in some frame.
    #[test]
    fn every_parameter_is_in_some_golden_request() {
        let mut seen = BTreeSet::new();
        for method in v1::IN_FORCE {
            for request in lines(&file_of(*method)).iter().step_by(2) {
                note(&method.to_string(), &value(request)["params"], &mut seen);
            }
        }
        let start = Method::ProcessStart.to_string();
        let parts = [
            (start.clone(), [v1::StartParams::REQUIRED, v1::StartParams::OPTIONAL].concat()),
            (format!("{start}.limits"), v1::ResourceLimits::OPTIONAL.to_vec()),
            (
                format!("{start}.workspace"),
                [v1::WorkspaceClaim::REQUIRED, v1::WorkspaceClaim::OPTIONAL].concat(),
            ),
            (Method::SessionOpen.to_string(), v1::SessionOpenParams::OPTIONAL.to_vec()),
            (format!("{}.quotas", Method::SessionOpen), v1::SessionQuotas::OPTIONAL.to_vec()),
            (Method::SessionClose.to_string(), v1::SessionCloseParams::OPTIONAL.to_vec()),
            (Method::ProcessOutput.to_string(), v1::OutputParams::OPTIONAL.to_vec()),
            (Method::ProcessInput.to_string(), v1::InputParams::OPTIONAL.to_vec()),
            (Method::ProcessSearch.to_string(), v1::SearchParams::OPTIONAL.to_vec()),
            (Method::ProcessExport.to_string(), v1::ExportParams::OPTIONAL.to_vec()),
            (Method::ProcessList.to_string(), v1::ListParams::OPTIONAL.to_vec()),
            (Method::EventsSubscribe.to_string(), v1::SubscribeParams::OPTIONAL.to_vec()),
            (Method::LeaseAcquire.to_string(), v1::LeaseAcquireParams::OPTIONAL.to_vec()),
        ];
        let wanted =
            parts.iter().flat_map(|(at, names)| names.iter().map(move |n| format!("{at}.{n}")));
        let missing: Vec<_> = wanted.filter(|name| !seen.contains(name)).collect();
        assert!(missing.is_empty(), "in no golden request: {missing:?}");
    }

    /// The names of all fields, by the way to them.
    fn note(at: &str, value: &Value, seen: &mut BTreeSet<String>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            note(&at, value, seen);
            seen.insert(at);
        }
    }

    #[test]
    fn golden_notices_are_read() {
        for line in lines("notices.jsonl") {
            let Ok(Incoming::Notice(notice)) = envelope::parse_incoming(line.as_bytes()) else {
                panic!("no notice: {line}")
            };
            let request = if notice.method == envelope::CANCEL {
                let params: v1::CancelParams = field::parse(notice.params).expect("parameters");
                params.request
            } else {
                assert_eq!(notice.method, envelope::EXPORT_CONTINUE);
                let params = field::parse::<v1::ExportContinueParams>(notice.params);
                let params = params.expect("parameters");
                assert_eq!(params.validate(), Ok(()));
                params.request
            };
            assert_eq!(request.number(), 7);
        }
    }

    #[test]
    fn golden_protocol_errors_are_read_without_an_id() {
        for line in lines("protocol_errors.jsonl") {
            let received = envelope::parse_received(line.as_bytes());
            let Ok(Received::Reply { id: None, outcome: Err(error) }) = received else {
                panic!("no error: {line}")
            };
            let again = serde_json::to_string(&ErrorReply { id: None, error: &error, trace: None });
            assert_eq!(value(&again.expect("json")), value(&line));
        }
    }
}
