// Follows ConfigMaps with the JavaScript client's informer: `informer.js KUBECONFIG NAMESPACE`.
//
// One JSON line for each event of a ConfigMap that has a sequence number, {"type":"ADDED","name":"item-1","sequence":7},
// and {"type":"READY"} when it has listed. It ends with code 0 on SIGTERM. An error that the library hands to its user is
// a line on standard error, and the informer is started again as the library's documentation has it.

import { CoreV1Api, KubeConfig, makeInformer } from '@kubernetes/client-node';

const [kubeconfig, namespace] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromFile(kubeconfig);
const core = config.makeApiClient(CoreV1Api);
const list = () => core.listNamespacedConfigMap({ namespace });
const informer = makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list);

const line = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const show = (type) => (object) => {
  const sequence = object.data?.sequence;
  if (sequence !== undefined) {
    line({ type, name: object.metadata.name, sequence: Number(sequence) });
  }
};

informer.on('add', show('ADDED'));
informer.on('update', show('MODIFIED'));
informer.on('delete', show('DELETED'));
informer.on('error', (error) => {
  process.stderr.write(`E ${error?.stack ?? error}\n`);
  setTimeout(() => informer.start(), 1000);
});
process.on('SIGTERM', () => process.exit(0));

await informer.start();
line({ type: 'READY' });
