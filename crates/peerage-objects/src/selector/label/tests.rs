use super::*;
use proptest::prelude::*;

fn objects() -> [(&'static str, BTreeMap<String, String>); 6] {
    let labels = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    [
        (
            "c0",
            labels(&[("set", "l"), ("tier", "web"), ("env", "prod")]),
        ),
        (
            "c1",
            labels(&[("set", "l"), ("tier", "web"), ("env", "dev")]),
        ),
        (
            "c2",
            labels(&[("set", "l"), ("tier", "db"), ("env", "prod")]),
        ),
        ("c3", labels(&[("set", "l"), ("tier", "cache")])),
        ("c4", labels(&[("set", "l")])),
        ("c5", labels(&[("x.example/y", ""), ("n", "10")])),
    ]
}

#[test]
fn selectors_match_what_kube_apiserver_matches() {
    let cases: [(&str, &str); 30] = [
        ("tier=web", "c0 c1"),
        ("tier==web", "c0 c1"),
        ("tier!=web", "c2 c3 c4 c5"),
        ("tier", "c0 c1 c2 c3"),
        ("!tier", "c4 c5"),
        ("tier in (web,db)", "c0 c1 c2"),
        ("tier in (web)", "c0 c1"),
        ("tier notin (web, db)", "c3 c4 c5"),
        ("tier=web,env=prod", "c0"),
        ("tier=web,env!=prod", "c1"),
        ("set,!env", "c3 c4"),
        ("env in (prod,)", "c0 c2"),
        ("env in (,prod)", "c0 c2"),
        ("env in (prod,,dev)", "c0 c1 c2"),
        ("x.example/y=", "c5"),
        ("x.example/y", "c5"),
        ("x.example/y in ()", "c5"),
        ("n>5", "c5"),
        ("n<5", ""),
        ("n>10", ""),
        ("n<11", "c5"),
        ("tier>1", ""),
        ("tier=", ""),
        ("tier=none", ""),
        ("  tier = web  ", "c0 c1"),
        ("tier in ()", ""),
        ("", "c0 c1 c2 c3 c4 c5"),
        ("in in (in)", ""),
        ("Tier!=x", "c0 c1 c2 c3 c4 c5"),
        ("env=in", ""),
    ];
    for (text, names) in cases {
        let selector = LabelSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let found: Vec<&str> = objects()
            .iter()
            .filter(|(_, labels)| selector.matches(labels))
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(found.join(" "), names, "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_in_kubernetes_words() {
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let long = "v".repeat(64);
    let cases = [
        ("n>abc", "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer".to_owned()),
        (",", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("tier=web,", "found '', expected: identifier after ','".to_owned()),
        ("=web", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        ("tier=web=x", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("tier in web", "unable to parse requirement: found 'web' expected: '('".to_owned()),
        ("tier in (web", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("tier in (", "unable to parse requirement: found '', expected: ',', ')' or identifier".to_owned()),
        ("tier!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("!!tier", "unable to parse requirement: found '!', expected: identifier".to_owned()),
        ("tier notin", "unable to parse requirement: found '' expected: '('".to_owned()),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("tier=we b", "found 'b', expected: ',' or 'end of string'".to_owned()),
        ("tier === web", "unable to parse requirement: found '=', expected: identifier".to_owned()),
        ("tier=-web", format!("unable to parse requirement: values[0][tier]: Invalid value: \"-web\": {value}")),
        ("tier=web;env=prod", "unable to parse requirement: values[0][tier]: Invalid value: \"web;env\": ".to_owned() + value),
        ("tier/=x", "unable to parse requirement: <nil>: Invalid value: \"tier/\": name part must be non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')".to_owned()),
    ];
    for (text, error) in cases {
        assert_eq!(
            LabelSelector::parse(text).unwrap_err().to_string(),
            error,
            "{text}"
        );
    }
    assert_eq!(
        LabelSelector::parse(&format!("tier={long}"))
            .unwrap_err()
            .to_string(),
        format!(
            "unable to parse requirement: values[0][tier]: Invalid value: \"{long}\": must be no more than 63 bytes"
        )
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in "\\PC{0,40}") {
        let _ = LabelSelector::parse(&text);
    }

    #[test]
    fn any_mixture_of_tokens_is_read_or_refused_without_a_panic(
        text in "([a-c]|in|notin|[=!<>(),]| ){0,16}"
    ) {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let printed = selector.to_string();
            prop_assert_eq!(LabelSelector::parse(&printed).unwrap(), selector, "{}", printed);
        }
    }

    #[test]
    fn a_requirement_and_its_opposite_split_all_objects(
        key in "[ab]",
        values in proptest::collection::vec("[xyz]?", 1..3),
        label in proptest::option::of("[xyz]?"),
    ) {
        let labels: BTreeMap<String, String> = label.map(|v| ("a".to_owned(), v)).into_iter().collect();
        let list = values.join(",");
        let yes = LabelSelector::parse(&format!("{key} in ({list})")).unwrap();
        let no = LabelSelector::parse(&format!("{key} notin ({list})")).unwrap();
        prop_assert_ne!(yes.matches(&labels), no.matches(&labels));
    }
}
