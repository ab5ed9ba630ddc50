//! Node ports: one record of all that are taken, which is kube-apiserver's own (`RangeAllocation`), so that servers of
//! both kinds on one store never give out the same.
//!
//! It is a bitmap, changed under the condition that nobody else has changed it. Where there is none yet, it begins with
//! what the services have. Whose a port is, it does not say: kube-apiserver's repair, every few minutes, takes back
//! what no service has.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peerage_core::Status;
use peerage_store::{Revision, StoreExt as _, WriteError};
use prost::Message as _;
use serde_json::{Value, json};

use super::Held;
use crate::call::Call;
use crate::error::ApiError;
use crate::wire;

/// The range where there is no record yet (`--service-node-port-range`).
const RANGE: &str = "30000-32767";
/// Tries of a change while others change the record too.
const TRIES: usize = 256;
const KIND: &str = "RangeAllocation";

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The port is taken for whoever asked.
    Taken(u16),
    /// Somebody has it, or, where any would do, there is none left.
    Gone,
    /// It is not between these two.
    Outside(u16, u16),
}

/// Takes the port that is wanted, or any.
pub(super) async fn take(
    call: &Call,
    wanted: Option<i64>,
    dry_run: bool,
) -> Result<Outcome, ApiError> {
    let Some(key) = key(call) else {
        return Err(Status::internal("there is no place for the record of node ports").into());
    };
    for _ in 0..TRIES {
        let mut record = read(call, &key).await?;
        let at = match wanted {
            None => record.free(),
            Some(port) => match record.index(port) {
                None => return Ok(Outcome::Outside(record.first, record.last)),
                Some(at) => Some(at).filter(|at| !record.taken(*at)),
            },
        };
        let Some(at) = at else {
            return Ok(Outcome::Gone);
        };
        record.set(at, true);
        if dry_run || write(call, &key, &record).await? {
            return Ok(Outcome::Taken(record.first + at));
        }
    }
    Err(Status::server_timeout(call.group_resource(), "create", 1).into())
}

/// Gives ports back.
pub(super) async fn release(call: &Call, ports: &BTreeSet<u16>) -> Result<(), ApiError> {
    let Some(key) = key(call).filter(|_| !ports.is_empty()) else {
        return Ok(());
    };
    for _ in 0..TRIES {
        let mut record = read(call, &key).await?;
        for port in ports {
            if let Some(at) = record.index(i64::from(*port)) {
                record.set(at, false);
            }
        }
        if record.revision == 0 || write(call, &key, &record).await? {
            return Ok(());
        }
    }
    Err(Status::server_timeout(call.group_resource(), "update", 1).into())
}

fn key(call: &Call) -> Option<String> {
    let place = call.served.place.as_ref()?;
    let storage = call.resource().storage.as_ref()?;
    let root = place.prefix.strip_suffix(&format!("{}/", storage.key))?;
    Some(format!("{root}ranges/servicenodeports"))
}

async fn read(call: &Call, key: &str) -> Result<Record, ApiError> {
    let kv = call.api().store.get(key.to_owned()).await;
    let unreadable = || {
        let what = format!("the record of node ports cannot be read (key {key})");
        Status::internal(what).into()
    };
    match kv.map_err(|e| call.store_error(&e))? {
        Some(kv) => Record::parse(&kv.value, kv.mod_revision).ok_or_else(unreadable),
        None => of_services(call).await,
    }
}

/// The record that there would be if all services had been entered.
async fn of_services(call: &Call) -> Result<Record, ApiError> {
    call.fresh().await?;
    let empty =
        json!({ "kind": KIND, "apiVersion": "v1", "metadata": {}, "range": RANGE, "data": "" });
    let record = Record::parse(empty.to_string().as_bytes(), 0);
    let mut record = record.ok_or_else(|| Status::internal("the range of node ports is none"))?;
    for object in call.place()?.cache.snapshot("", 0).objects {
        let service: Value = object.parse().unwrap_or_default();
        for port in Held::of(call, &service).ports {
            if let Some(at) = record.index(i64::from(port)) {
                record.set(at, true);
            }
        }
    }
    Ok(record)
}

/// Whether nobody was faster.
async fn write(call: &Call, key: &str, record: &Record) -> Result<bool, ApiError> {
    let value = record.value();
    let update = call
        .api()
        .store
        .update(key.to_owned(), value, record.revision, 0);
    match update.await {
        Ok(_) => Ok(true),
        Err(WriteError::Conflict { .. }) => Ok(false),
        Err(WriteError::Store(error)) => Err(call.store_error(&error)),
    }
}

/// How the record is stored; the rest of it is kept as it is.
#[derive(Debug, Clone, PartialEq)]
enum Form {
    Json(Value),
    Protobuf(Box<wire::RangeAllocation>),
}

#[derive(Debug, Clone, PartialEq)]
struct Record {
    form: Form,
    first: u16,
    last: u16,
    /// The lowest bit of the first byte is the first port's.
    bits: Vec<u8>,
    revision: Revision,
}

impl Record {
    fn parse(value: &[u8], revision: Revision) -> Option<Self> {
        let (form, range, data) = match wire::open_typed(value) {
            Some((types, raw)) => {
                let message = wire::RangeAllocation::decode(raw.as_slice()).ok()?;
                // What is not known here would be lost.
                if types.kind != KIND || message.encode_to_vec() != raw {
                    return None;
                }
                let range = message.range.clone().unwrap_or_default();
                let data = message.data.clone().unwrap_or_default();
                (Form::Protobuf(Box::new(message)), range, data)
            }
            None => {
                let object: Value = serde_json::from_slice(value).ok()?;
                let range = object["range"].as_str()?.to_owned();
                let data = STANDARD.decode(object["data"].as_str().unwrap_or_default());
                (Form::Json(object), range, data.ok()?)
            }
        };
        let (first, last) = range.split_once('-')?;
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        // Go writes the highest byte first.
        let bits = data.into_iter().rev().collect();
        (first <= last).then_some(Self {
            form,
            first,
            last,
            bits,
            revision,
        })
    }

    fn value(&self) -> Vec<u8> {
        let used = self
            .bits
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let data: Vec<u8> = self.bits.iter().take(used).rev().copied().collect();
        match &self.form {
            Form::Json(object) => {
                let mut object = object.clone();
                object["data"] = STANDARD.encode(data).into();
                object.to_string().into_bytes()
            }
            Form::Protobuf(message) => {
                let message = wire::RangeAllocation {
                    data: Some(data),
                    ..*message.clone()
                };
                wire::seal("v1", KIND, &message)
            }
        }
    }

    fn index(&self, port: i64) -> Option<u16> {
        let port = u16::try_from(port).ok()?;
        (self.first..=self.last)
            .contains(&port)
            .then(|| port - self.first)
    }

    fn taken(&self, at: u16) -> bool {
        let byte = self.bits.get(usize::from(at / 8)).copied().unwrap_or(0);
        byte & 1 << (at % 8) != 0
    }

    fn set(&mut self, at: u16, taken: bool) {
        let byte = usize::from(at / 8);
        if self.bits.len() <= byte {
            self.bits.resize(byte + 1, 0);
        }
        match taken {
            true => self.bits[byte] |= 1 << (at % 8),
            false => self.bits[byte] &= !(1 << (at % 8)),
        }
    }

    /// Any that is free. The lower part is left to those who ask for a port for as long as there are others, as
    /// kube-apiserver does: a thirty-second of the range, at least 16 and at most 128 ports.
    fn free(&self) -> Option<u16> {
        let size = self.last - self.first + 1;
        let kept = (size / 32).clamp(16, 128);
        let kept = if size > kept { kept } else { 0 };
        let (upper, from) = (size - kept, rand::random_range(0..size - kept));
        let upper = (0..upper).map(|step| kept + (from + step) % upper);
        upper.chain(0..kept).find(|at| !self.taken(*at))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn record(data: &str) -> Record {
        let object = json!({ "kind": KIND, "metadata": {}, "range": "30000-30039", "data": data });
        Record::parse(object.to_string().as_bytes(), 7).unwrap()
    }

    #[test]
    fn bits_are_where_go_puts_them() {
        // big.Int with the bits 0 and 8: 0x0101.
        let mut record = record("AQE=");
        let taken: Vec<u16> = (0..40).filter(|at| record.taken(*at)).collect();
        assert_eq!(taken, [0, 8]);
        record.set(8, false);
        record.set(1, true);
        let value: Value = serde_json::from_slice(&record.value()).unwrap();
        assert_eq!(value["data"], "Aw==");
        assert_eq!(value["range"], "30000-30039");
    }

    #[test]
    fn protobuf_stays_protobuf() {
        let message = wire::RangeAllocation {
            metadata: Some(wire::ObjectMeta::default()),
            range: Some("30000-30039".to_owned()),
            data: Some(vec![1]),
        };
        let value = wire::seal("v1", KIND, &message);
        let mut record = Record::parse(&value, 7).unwrap();
        assert!(record.taken(0) && !record.taken(1));
        assert_eq!(record.value(), value);
        record.set(9, true);
        let again = Record::parse(&record.value(), 7).unwrap();
        assert!(again.taken(9) && matches!(again.form, Form::Protobuf(_)));
    }

    #[test]
    fn every_port_is_given_once_and_the_lower_ones_last() {
        let mut record = record("");
        let given: Vec<u16> = std::iter::from_fn(|| {
            let at = record.free()?;
            record.set(at, true);
            Some(at)
        })
        .collect();
        assert_eq!(given.len(), 40);
        assert!(given[..24].iter().all(|at| *at >= 16));
        assert_eq!(given[24..], (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn odd_records_are_none() {
        for value in [
            "",
            "{}",
            r#"{"range": "1"}"#,
            r#"{"range": "2-1"}"#,
            r#"{"range": "1-2", "data": "?"}"#,
        ] {
            assert_eq!(Record::parse(value.as_bytes(), 1), None, "{value}");
        }
        assert_eq!(Record::parse(b"k8s\0\n", 1), None);
    }
}
