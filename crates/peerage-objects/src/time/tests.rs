use super::*;
use proptest::prelude::*;

#[test]
fn times_are_shown_in_utc() {
    for (text, shown) in [
        ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00Z"),
        ("2026-11-29T20:01:02.987Z", "2026-11-29T20:01:02Z"),
        ("2026-11-29T20:01:02+02:00", "2026-11-29T18:01:02Z"),
        ("2024-02-29T23:30:00-01:30", "2024-03-01T01:00:00Z"),
    ] {
        assert_eq!(show(parse(text).unwrap()), shown);
    }
    let micro = parse_micro("2026-01-02T03:04:05.678901Z").unwrap();
    assert_eq!(show_micro(micro), "2026-01-02T03:04:05.678901Z");
    let old = parse_micro("1960-01-02T03:04:05.678901Z").unwrap();
    assert_eq!(show_micro(old), "1960-01-02T03:04:05.678901Z");
    let ancient = parse("0001-01-01T00:00:00Z").unwrap();
    assert_eq!(show(ancient), "0001-01-01T00:00:00Z");
}

#[test]
fn what_is_no_time_is_refused_in_the_words_of_go() {
    let cases = [
        (
            "yesterday",
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
        ),
        (
            "",
            r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#,
        ),
        (
            "2026-1-1",
            r#"parsing time "2026-1-1" as "2006-01-02T15:04:05Z07:00": cannot parse "1-1" as "01""#,
        ),
        (
            "2026-13-01T00:00:00Z",
            r#"parsing time "2026-13-01T00:00:00Z": month out of range"#,
        ),
        (
            "2026-02-30T00:00:00Z",
            r#"parsing time "2026-02-30T00:00:00Z": day out of range"#,
        ),
        (
            "2026-02-03T00:00:00",
            r#"parsing time "2026-02-03T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
        ),
        (
            "2026-02-03T00:00:00Zx",
            r#"parsing time "2026-02-03T00:00:00Zx": extra text: "x""#,
        ),
    ];
    for (text, error) in cases {
        assert_eq!(parse(text).unwrap_err().to_string(), error);
    }
    assert_eq!(
        parse_micro("2026-01-02T03:04:06Z").unwrap_err().to_string(),
        r#"parsing time "2026-01-02T03:04:06Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in "\\PC{0,12}|[0-9TZ:.+-]{0,30}") {
        let _ = parse(&text);
        let _ = parse_micro(&text);
    }

    #[test]
    fn what_is_shown_reads_the_same(seconds in -60_000_000_000i64..200_000_000_000) {
        let time = Timestamp::new(seconds, 0).unwrap();
        prop_assert_eq!(parse(&show(time)).unwrap(), time);
    }
}
