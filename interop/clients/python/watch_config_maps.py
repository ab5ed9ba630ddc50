"""Follows ConfigMaps as users of the Python client do: `watch_config_maps.py KUBECONFIG NAMESPACE`.

One JSON line for each event of a ConfigMap that has a sequence number, {"type": "ADDED", "name": "item-1", "sequence": 7},
and {"type": "READY"} at the start. It ends with code 0 on SIGTERM; an exception ends it otherwise, as it would end a
user's program.
"""

import json
import signal
import sys

from kubernetes import client, config, watch


def stop(*_):
    sys.exit(0)


def line(**event):
    print(json.dumps(event), flush=True)


def main(kubeconfig, namespace):
    signal.signal(signal.SIGTERM, stop)
    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()
    listed = core.list_namespaced_config_map(namespace)
    for config_map in listed.items:
        show("LISTED", config_map)
    line(type="READY")
    # The library watches again from where it was whenever the server ends a watch.
    version = listed.metadata.resource_version
    stream = watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version=version)
    for event in stream:
        show(event["type"], event["object"])


def show(kind, config_map):
    sequence = (config_map.data or {}).get("sequence")
    if sequence is not None:
        line(type=kind, name=config_map.metadata.name, sequence=int(sequence))


main(*sys.argv[1:])
