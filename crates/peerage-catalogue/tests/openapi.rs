//! What OpenAPI says of types that no schema says.
#![allow(clippy::unwrap_used)]

use peerage_catalogue::{Catalogue, KindList, RuntimeConfig};

#[test]
fn kinds_are_found_by_type() {
    let catalogue = Catalogue::load("1.37", &RuntimeConfig::default()).unwrap();
    let id = catalogue
        .type_by_name("io.k8s.api.apps.v1.Deployment")
        .unwrap();
    let Some(KindList::These(kinds)) = catalogue.kinds_of_type(id) else {
        panic!("a deployment is a kind");
    };
    assert_eq!(kinds[0].api_version(), "apps/v1");
    let options = catalogue
        .type_by_name("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
        .unwrap();
    assert_eq!(
        catalogue.kinds_of_type(options),
        Some(&KindList::OfDocument("DeleteOptions".to_owned()))
    );
}
