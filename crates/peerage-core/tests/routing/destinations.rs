//! Where a request goes when all servers are known: by group, version, resource, subresource and verb.

use peerage_core::view::*;

use crate::common::{inputs, local, peer};
use crate::{NEW, OLD, SENT_ON, ask, ask_by};

#[test]
fn requests_go_to_whoever_lists_group_version_resource_subresource_and_verb() {
    let view = PeerView::build(inputs(local(OLD), vec![peer("b", NEW)]));
    for (request, first_hop, second_hop) in [
        (
            "GET /api/v1/namespaces/x/pods/p",
            "local:served",
            "local:served",
        ),
        ("GET /api/v1/pods", "local:served", "local:served"),
        (
            "GET /api/v1/namespaces/x/pods/p/log",
            "local:served",
            "local:served",
        ),
        // Lacks the verb, the subresource, the verb of a subresource, the version, the group.
        (
            "PATCH /api/v1/namespaces/x/pods/p",
            "peer:verb to b",
            "unsure:already_sent",
        ),
        (
            "GET /apis/apps/v1/deployments?watch=1",
            "peer:verb to b",
            "unsure:already_sent",
        ),
        (
            "PATCH /api/v1/namespaces/x/pods/p/resize",
            "peer:subresource to b",
            "unsure:already_sent",
        ),
        (
            "GET /apis/apps/v1/namespaces/x/deployments/d/scale",
            "peer:subresource to b",
            "unsure:already_sent",
        ),
        (
            "PUT /apis/apps/v1/namespaces/x/deployments/d/status",
            "peer:verb to b",
            "unsure:already_sent",
        ),
        (
            "GET /api/v2/namespaces/x/pods/p",
            "peer:version to b",
            "unsure:already_sent",
        ),
        (
            "GET /apis/apps/v2/namespaces/x/deployments/p",
            "peer:version to b",
            "unsure:already_sent",
        ),
        (
            "POST /apis/new/v1/namespaces/x/things",
            "peer:group to b",
            "unsure:already_sent",
        ),
        (
            "PUT /apis/new/v1/things/t/status",
            "peer:group to b",
            "unsure:already_sent",
        ),
        // Nobody has the verb or subresource: a server that knows the resource finds the words.
        (
            "DELETE /api/v1/namespaces/x/pods/p",
            "local:nobody_has_more",
            "local:nobody_has_more",
        ),
        (
            "GET /api/v1/namespaces/x/pods/p/nosuch",
            "local:nobody_has_more",
            "local:nobody_has_more",
        ),
        (
            "DELETE /apis/new/v1/things/t",
            "peer:group to b",
            "unsure:already_sent",
        ),
        (
            "GET /apis/new/v1/things/t/nosuch",
            "peer:group to b",
            "unsure:already_sent",
        ),
        // A method that has no verb is the business of whoever has the resource.
        (
            "OPTIONS /api/v1/namespaces/x/pods/p",
            "local:served",
            "local:served",
        ),
        (
            "OPTIONS /apis/new/v1/things/t",
            "peer:group to b",
            "unsure:already_sent",
        ),
        // Nobody has it.
        ("GET /api/v1/things", "unknown:resource", "unknown:resource"),
        (
            "GET /apis/new/v1/others",
            "unknown:resource",
            "unknown:resource",
        ),
        (
            "GET /apis/apps/v3/deployments",
            "unknown:version",
            "unknown:version",
        ),
        (
            "GET /apis/nosuch/v1/things",
            "unknown:group",
            "unknown:group",
        ),
        // No resource at all.
        ("GET /healthz", "local:non_resource", "local:non_resource"),
        (
            "GET /apis/new/v1",
            "local:non_resource",
            "local:non_resource",
        ),
    ] {
        assert_eq!(ask(&view, request), first_hop, "{request}");
        assert_eq!(
            ask_by(&view, request, &SENT_ON),
            second_hop,
            "{request}, sent on"
        );
    }
}
