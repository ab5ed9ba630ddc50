//! Controllers that run inside of the API server. Each works as a client of it, and only one of the servers on a
//! store runs each at a time.

mod leader;
mod namespace;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::Api;
use crate::loopback::Loopback;
use crate::options::Controller;

/// Starts the controllers that are wanted; they end with `stop`, giving up their lead.
pub(crate) fn start(
    wanted: &[Controller],
    api: &Arc<Api>,
    client: &Loopback,
    holder: &str,
    stop: &CancellationToken,
) -> TaskTracker {
    let running = TaskTracker::new();
    for controller in wanted {
        let lease = leader::Leadership::new(client.clone(), controller.name(), holder);
        match controller {
            Controller::Namespace => {
                running.spawn(namespace::run(
                    api.clone(),
                    client.clone(),
                    lease,
                    stop.clone(),
                ));
            }
        }
    }
    running.close();
    running
}
