//! What is a protocol error, and what the daemon writes a client reads.

use proptest::prelude::*;

use super::*;

fn error(frame: &str) -> ProtocolError {
    parse_incoming(frame.as_bytes()).expect_err(frame)
}

#[test]
fn what_is_no_json_or_no_object_is_a_protocol_error() {
    for frame in ["", "{", "nope", "{} {}", "{\"id\":1,}", "\u{feff}{}"] {
        assert!(matches!(error(frame), ProtocolError::NotJson(_)), "{frame}");
    }
    for frame in ["[]", "1", "null", "\"text\""] {
        assert_eq!(error(frame), ProtocolError::NotObject, "{frame}");
    }
    assert!(matches!(parse_incoming(b"{\"id\":\"\xff\"}"), Err(ProtocolError::NotJson(_))));
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert!(matches!(error(&deep), ProtocolError::NotJson(_)));
}

#[test]
fn a_key_that_is_there_twice_is_a_protocol_error_at_any_depth() {
    for frame in [
        r#"{"id":1,"id":2,"method":"hello"}"#,
        r#"{"id":1,"method":"m","params":{"id":1,"\u0069d":2}}"#,
        r#"{"id":1,"method":"m","params":{"a":[{"x":{}},{"id":1,"id":1}]}}"#,
    ] {
        assert_eq!(error(frame), ProtocolError::DuplicateKey("id".into()), "{frame}");
    }
}

#[test]
fn a_wrong_envelope_is_named_by_its_field() {
    for (frame, field) in [
        (r#"{"id":1}"#, "method"),
        (r#"{"method":"hello"}"#, "id"),
        (r#"{"id":null,"method":"hello"}"#, "id"),
        (r#"{"id":"1","method":"hello"}"#, "id"),
        (r#"{"id":1.5,"method":"hello"}"#, "id"),
        (r#"{"id":9007199254740992,"method":"hello"}"#, "id"),
        (r#"{"id":1,"method":7}"#, "method"),
        (r#"{"id":1,"method":"m","jsonrpc":"2.0"}"#, "jsonrpc"),
        (r#"{"id":1,"method":"m","trace":{}}"#, "trace.traceparent"),
        (r#"{"id":1,"method":"m","trace":{"traceparent":""}}"#, "trace.traceparent"),
    ] {
        let body = ErrorBody::from(error(frame));
        assert_eq!(body.code, ErrorCode::InvalidArguments);
        assert_eq!(body.details.field.as_deref(), Some(field), "{frame}");
    }
}

#[test]
fn a_request_keeps_its_parameters_raw_and_its_trace() {
    let frame =
        br#" {"trace":{"traceparent":"00-a"},"id":-7,"params":{ "a" :1},"method":"a\u002fb"} "#;
    let Ok(Incoming::Request(request)) = parse_incoming(frame) else { panic!("a request") };
    assert_eq!((request.id.number(), &*request.method), (-7, "a/b"));
    assert_eq!(request.params.unwrap().get(), r#"{ "a" :1}"#);
    assert_eq!(request.trace.unwrap().traceparent, "00-a");
    let cancel = parse_incoming(br#"{"method":"$/cancel","params":{"for":3}}"#);
    assert!(matches!(cancel, Ok(Incoming::Notice(_))));
}

#[test]
fn what_the_daemon_writes_a_client_reads() {
    let id = RequestId::new(5).unwrap();
    let trace = Trace { traceparent: "00-a".into() };
    let reply = ResultReply { id, result: &[1, 2], trace: Some(&trace) };
    let Ok(Received::Reply { id: got, outcome: Ok(raw) }) =
        parse_received(&serde_json::to_vec(&reply).unwrap())
    else {
        panic!("a result")
    };
    assert_eq!((got, raw.get()), (Some(id), "[1,2]"));

    let body = ErrorBody::new(ErrorCode::NotFound, "no such process");
    let reply = ErrorReply { id: None, error: &body, trace: None };
    let Ok(Received::Reply { id: None, outcome: Err(got) }) =
        parse_received(&serde_json::to_vec(&reply).unwrap())
    else {
        panic!("an error")
    };
    assert_eq!(*got, body);

    let notice = parse_received(br#"{"method":"later/kind","params":{"for":1},"novel":true}"#);
    assert!(matches!(notice, Ok(Received::Notice { .. })));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(parse_incoming(&bytes).is_err());
        prop_assert!(parse_received(&bytes).is_err());
    }

    #[test]
    fn a_request_comes_back_as_it_was_written(number in -(1i64 << 53) + 1..1i64 << 53, method in ".{0,20}", text in ".{0,50}") {
        let id = RequestId::new(number).unwrap();
        let written = RequestOut { id, method: &method, params: &[&text], trace: None };
        let frame = serde_json::to_vec(&written).unwrap();
        match parse_incoming(&frame) {
            Ok(Incoming::Request(request)) => {
                prop_assert_eq!(request.id, id);
                prop_assert_eq!(request.method, method.as_str());
                let texts: Vec<String> = serde_json::from_str(request.params.unwrap().get()).unwrap();
                prop_assert_eq!(&texts[0], &text);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
