//! A few small kinds for tests, shaped like Kubernetes' own.

use std::sync::Arc;

use serde_json::json;

use super::*;

/// The types, and where the kinds are.
pub(crate) struct Examples {
    pub(crate) types: Types,
    pub(crate) config_map: TypeId,
    pub(crate) secret: TypeId,
    pub(crate) deployment: TypeId,
    pub(crate) service: TypeId,
    pub(crate) role: TypeId,
}

struct Builder(Types);

impl Builder {
    fn of(&mut self, kind: SchemaKind) -> TypeId {
        self.0.push(Schema::anonymous(kind))
    }

    fn list(&mut self, items: TypeId, list: ListType) -> TypeId {
        self.of(SchemaKind::Array { items, list })
    }

    fn map(&mut self, values: TypeId) -> TypeId {
        self.of(SchemaKind::Map { values })
    }

    fn structure(&mut self, name: &str, fields: StructSchema) -> TypeId {
        self.0.push(Schema::named(name, SchemaKind::Struct(fields)))
    }
}

pub(crate) fn fields(properties: Vec<(&str, Property)>, required: &[&str]) -> StructSchema {
    StructSchema {
        properties: properties
            .into_iter()
            .map(|(name, p)| (Arc::from(name), p))
            .collect(),
        required: required.iter().map(|name| Arc::from(*name)).collect(),
        ..StructSchema::default()
    }
}

pub(crate) fn keys(keys: &[&str]) -> ListType {
    ListType::Map(keys.iter().map(|key| Arc::from(*key)).collect())
}

fn merged(ty: TypeId, key: Option<&str>) -> Property {
    Property {
        patch_strategy: PatchStrategy::Merge,
        patch_merge_key: key.map(Arc::from),
        ..Property::new(ty)
    }
}

fn with_default(ty: TypeId, default: Value) -> Property {
    Property {
        default: Some(default),
        ..Property::new(ty)
    }
}

pub(crate) fn examples() -> Examples {
    let mut b = Builder(Types::new());
    let text = b.of(SchemaKind::String(StringFormat::Any));
    let boolean = b.of(SchemaKind::Boolean);
    let int32 = b.of(SchemaKind::Integer(IntFormat::Int32));
    let int64 = b.of(SchemaKind::Integer(IntFormat::Int64));
    let time = b.of(SchemaKind::String(StringFormat::DateTime));
    let bytes = b.of(SchemaKind::String(StringFormat::Byte));
    let any = b.of(SchemaKind::Any);
    let quantity = b.of(SchemaKind::Quantity);
    let port = b.of(SchemaKind::IntOrString);
    let texts = b.map(text);
    let atomic_texts = b.list(text, ListType::Atomic);
    let text_set = b.list(text, ListType::Set);
    let data = b.map(bytes);
    let resources = b.map(quantity);
    let plain = Property::new;

    let owner = b.structure(
        "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
        fields(
            ["apiVersion", "kind", "name", "uid"]
                .map(|n| (n, with_default(text, json!(""))))
                .into(),
            &["apiVersion", "kind", "name", "uid"],
        ),
    );
    let owners = b.list(owner, keys(&["uid"]));
    let meta = b.structure(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        fields(
            vec![
                ("name", plain(text)),
                ("namespace", plain(text)),
                ("uid", plain(text)),
                ("resourceVersion", plain(text)),
                ("generation", plain(int64)),
                ("creationTimestamp", plain(time)),
                ("labels", plain(texts)),
                ("annotations", plain(texts)),
                ("finalizers", merged(text_set, None)),
                ("ownerReferences", merged(owners, Some("uid"))),
                ("managedFields", plain(any)),
            ],
            &[],
        ),
    );
    let head = |mut more: Vec<(&'static str, Property)>| {
        let empty = with_default(meta, json!({}));
        more.extend([
            ("apiVersion", plain(text)),
            ("kind", plain(text)),
            ("metadata", empty),
        ]);
        more
    };
    let config_map = b.structure(
        "io.k8s.api.core.v1.ConfigMap",
        fields(
            head(vec![
                ("data", plain(texts)),
                ("binaryData", plain(data)),
                ("immutable", plain(boolean)),
            ]),
            &[],
        ),
    );
    let secret = b.structure(
        "io.k8s.api.core.v1.Secret",
        fields(
            head(vec![("data", plain(data)), ("stringData", plain(texts))]),
            &[],
        ),
    );
    let rule = b.structure(
        "io.k8s.api.rbac.v1.PolicyRule",
        fields(vec![("verbs", plain(atomic_texts))], &["verbs"]),
    );
    let rules = b.list(rule, ListType::Atomic);
    let role = b.structure(
        "io.k8s.api.rbac.v1.Role",
        fields(head(vec![("rules", plain(rules))]), &["rules"]),
    );

    let env = b.structure(
        "io.k8s.api.core.v1.EnvVar",
        fields(
            vec![
                ("name", with_default(text, json!(""))),
                ("value", plain(text)),
            ],
            &["name"],
        ),
    );
    let envs = b.list(env, keys(&["name"]));
    let container_port = b.structure(
        "io.k8s.api.core.v1.ContainerPort",
        fields(
            vec![
                ("containerPort", with_default(int32, json!(0))),
                ("name", plain(text)),
                (
                    "protocol",
                    Property {
                        allowed: Some(["SCTP", "TCP", "UDP"].map(Arc::from).into()),
                        ..with_default(text, json!("TCP"))
                    },
                ),
            ],
            &["containerPort"],
        ),
    );
    let ports = b.list(container_port, keys(&["containerPort", "protocol"]));
    let requirements = b.structure(
        "io.k8s.api.core.v1.ResourceRequirements",
        fields(vec![("limits", plain(resources))], &[]),
    );
    let container = b.structure(
        "io.k8s.api.core.v1.Container",
        fields(
            vec![
                ("name", with_default(text, json!(""))),
                ("image", plain(text)),
                ("args", plain(atomic_texts)),
                ("env", merged(envs, Some("name"))),
                ("ports", merged(ports, Some("containerPort"))),
                ("resources", with_default(requirements, json!({}))),
            ],
            &["name"],
        ),
    );
    let containers = b.list(container, keys(&["name"]));
    let toleration = b.structure(
        "io.k8s.api.core.v1.Toleration",
        fields(vec![("key", plain(text)), ("operator", plain(text))], &[]),
    );
    let tolerations = b.list(toleration, ListType::Atomic);
    let source = b.structure(
        "io.k8s.api.core.v1.ConfigMapVolumeSource",
        fields(
            vec![("name", plain(text)), ("secretName", plain(text))],
            &[],
        ),
    );
    let volume = b.structure(
        "io.k8s.api.core.v1.Volume",
        fields(
            vec![
                ("name", with_default(text, json!(""))),
                ("configMap", plain(source)),
                ("secret", plain(source)),
                ("emptyDir", plain(source)),
            ],
            &["name"],
        ),
    );
    let volumes = b.list(volume, keys(&["name"]));
    let pod_spec = b.structure(
        "io.k8s.api.core.v1.PodSpec",
        fields(
            vec![
                ("containers", merged(containers, Some("name"))),
                ("hostNetwork", plain(boolean)),
                ("tolerations", plain(tolerations)),
                (
                    "volumes",
                    Property {
                        patch_strategy: PatchStrategy::MergeRetainKeys,
                        ..merged(volumes, Some("name"))
                    },
                ),
            ],
            &["containers"],
        ),
    );
    let template = b.structure(
        "io.k8s.api.core.v1.PodTemplateSpec",
        fields(
            vec![
                ("metadata", with_default(meta, json!({}))),
                ("spec", with_default(pod_spec, json!({}))),
            ],
            &[],
        ),
    );
    let selector = b.structure(
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
        StructSchema {
            atomic: true,
            ..fields(vec![("matchLabels", plain(texts))], &[])
        },
    );
    let rolling = b.structure(
        "io.k8s.api.apps.v1.RollingUpdateDeployment",
        fields(vec![("maxSurge", plain(port))], &[]),
    );
    let strategy = b.structure(
        "io.k8s.api.apps.v1.DeploymentStrategy",
        fields(
            vec![("type", plain(text)), ("rollingUpdate", plain(rolling))],
            &[],
        ),
    );
    let deployment_spec = b.structure(
        "io.k8s.api.apps.v1.DeploymentSpec",
        fields(
            vec![
                ("replicas", plain(int32)),
                ("selector", plain(selector)),
                (
                    "strategy",
                    Property {
                        patch_strategy: PatchStrategy::RetainKeys,
                        ..with_default(strategy, json!({}))
                    },
                ),
                ("template", with_default(template, json!({}))),
            ],
            &["selector", "template"],
        ),
    );
    let deployment = b.structure(
        "io.k8s.api.apps.v1.Deployment",
        fields(
            head(vec![("spec", with_default(deployment_spec, json!({})))]),
            &[],
        ),
    );
    let service_port = b.structure(
        "io.k8s.api.core.v1.ServicePort",
        fields(
            vec![
                ("port", with_default(int32, json!(0))),
                ("targetPort", plain(port)),
            ],
            &["port"],
        ),
    );
    let service_ports = b.list(service_port, keys(&["port", "protocol"]));
    let service_spec = b.structure(
        "io.k8s.api.core.v1.ServiceSpec",
        fields(vec![("ports", merged(service_ports, Some("port")))], &[]),
    );
    let service = b.structure(
        "io.k8s.api.core.v1.Service",
        fields(
            head(vec![("spec", with_default(service_spec, json!({})))]),
            &[],
        ),
    );
    Examples {
        types: b.0,
        config_map,
        secret,
        deployment,
        service,
        role,
    }
}
