package main

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// copyPrefix begins the names of the ConfigMaps that the reconciler writes.
const copyPrefix = "copy-of-"

// controllerManager runs a manager, elected by Lease, whose reconciler keeps a copy of each ConfigMap.
func controllerManager(ctx context.Context, config *rest.Config, namespace string) error {
	ctrl.SetLogger(klog.Background())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                       server.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionNamespace:       namespace,
		LeaderElectionID:              "copier",
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	copies := &copier{manager.GetClient()}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(copies); err != nil {
		return err
	}
	go func() {
		<-manager.Elected()
		if manager.GetCache().WaitForCacheSync(ctx) {
			event{Type: "READY"}.print()
		}
	}()
	return manager.Start(ctx)
}

type copier struct{ client.Client }

// Reconcile makes the copy of a ConfigMap what the ConfigMap is.
func (c *copier) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var original corev1.ConfigMap
	if err := c.Get(ctx, request.NamespacedName, &original); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if original.Data["sequence"] == "" || original.Labels["copy"] != "" {
		return ctrl.Result{}, nil
	}
	err := c.write(ctx, &original)
	if errors.IsConflict(err) || errors.IsAlreadyExists(err) {
		// The cache is behind our own last write, which is a reconciler's daily life.
		return ctrl.Result{Requeue: true}, nil
	}
	if err == nil {
		printData("COPIED", original.Name, original.Data)
	}
	return ctrl.Result{}, err
}

func (c *copier) write(ctx context.Context, original *corev1.ConfigMap) error {
	var written corev1.ConfigMap
	key := client.ObjectKey{Namespace: original.Namespace, Name: copyPrefix + original.Name}
	switch err := c.Get(ctx, key, &written); {
	case errors.IsNotFound(err):
		written = corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace,
				Name:      key.Name,
				Labels:    map[string]string{"copy": "yes"},
			},
			Data: original.Data,
		}
		return c.Create(ctx, &written)
	case err != nil:
		return err
	case maps.Equal(written.Data, original.Data):
		return nil
	}
	changed := written.DeepCopy()
	changed.Data = original.Data
	return c.Update(ctx, changed)
}
