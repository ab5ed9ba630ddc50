package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// sharedInformer follows ConfigMaps through the typed client, in protobuf where the kubeconfig does not say otherwise.
func sharedInformer(ctx context.Context, config *rest.Config, namespace string) error {
	config.ContentType = "application/vnd.kubernetes.protobuf"
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(namespace))
	return follow(ctx, factory.Core().V1().ConfigMaps().Informer(), factory.Start, factory.Shutdown)
}

// dynamicInformer follows the same through the client that knows no types, in JSON.
func dynamicInformer(ctx context.Context, config *rest.Config, namespace string) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	return follow(ctx, factory.ForResource(resource).Informer(), factory.Start, factory.Shutdown)
}

func follow(ctx context.Context, informer cache.SharedIndexInformer, start func(<-chan struct{}), shutdown func()) error {
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { printObject("ADDED", object) },
		UpdateFunc: func(_, object any) { printObject("MODIFIED", object) },
		DeleteFunc: func(object any) { printObject("DELETED", object) },
	})
	if err != nil {
		return err
	}
	start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return fmt.Errorf("stopped before the first list was there")
	}
	event{Type: "READY"}.print()
	<-ctx.Done()
	shutdown()
	return nil
}

func printObject(kind string, object any) {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		printData(kind, object.Name, object.Data)
	case *unstructured.Unstructured:
		data, _, _ := unstructured.NestedStringMap(object.Object, "data")
		printData(kind, object.GetName(), data)
	case cache.DeletedFinalStateUnknown:
		// The informer had to list anew and found it gone: its last states were missed.
		printObject("LOST", object.Obj)
	}
}
