// Clients of a Kubernetes API server as their users write them, which print what they see.
//
//	clients informer|dynamic|manager KUBECONFIG NAMESPACE
//
// Each prints one JSON line for each event of a ConfigMap that has a sequence number, {"type":"ADDED","name":"item-1",
// "sequence":7}, and {"type":"READY"} once it has listed. It ends with code 0 on SIGTERM. What goes wrong is on standard
// error in klog's form, as users of these libraries see it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// program is one way of following ConfigMaps, until the context ends.
type program func(ctx context.Context, config *rest.Config, namespace string) error

var programs = map[string]program{
	"informer": sharedInformer,
	"dynamic":  dynamicInformer,
	"manager":  controllerManager,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "E", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 || programs[args[0]] == nil {
		return fmt.Errorf("clients informer|dynamic|manager KUBECONFIG NAMESPACE")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[1])
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return programs[args[0]](ctx, config, args[2])
}

// event is a line of the output.
type event struct {
	Type     string `json:"type"`
	Name     string `json:"name,omitempty"`
	Sequence int    `json:"sequence,omitempty"`
}

var output sync.Mutex

func (e event) print() {
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(e); err != nil {
		panic(err)
	}
}

// printData prints what happened to a ConfigMap with a sequence number in its data; others are none of our business.
func printData(kind, name string, data map[string]string) {
	if sequence, err := strconv.Atoi(data["sequence"]); err == nil {
		event{Type: kind, Name: name, Sequence: sequence}.print()
	}
}
