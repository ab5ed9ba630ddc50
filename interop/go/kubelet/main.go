// The part of a kubelet that kube-apiserver sends exec, attach, port-forward and logs to, with the code that real
// kubelets serve those with (k8s.io/cri-streaming) and ordinary processes in place of containers.
//
//	kubelet ADDRESS DIRECTORY CERTIFICATE KEY CLIENT-CA
//
// It listens at ADDRESS and lets in only whom CLIENT-CA vouches for, since it runs what it is told to. Commands run in
// DIRECTORY. What is attached to says what it is told. A log has ten lines at once and one more every 100 ms when it is
// followed; that its reader has gone is written to standard output, as is every session that begins or ends.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	// idleTimeout is how long a session may be silent; kubelets allow four hours.
	idleTimeout = time.Hour
	// streamTimeout is how long a client may take to open the streams that it asked for.
	streamTimeout = 30 * time.Second
)

func main() {
	log.SetFlags(0)
	log.SetOutput(os.Stdout)
	if len(os.Args) != 6 {
		log.Fatal("kubelet ADDRESS DIRECTORY CERTIFICATE KEY CLIENT-CA")
	}
	log.Fatal(serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
}

func serve(address, directory, certificate, key, clientCA string) error {
	bundle, err := os.ReadFile(clientCA)
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(bundle) {
		return fmt.Errorf("no certificate in %s", clientCA)
	}
	node := containers{directory: directory}
	mux := http.NewServeMux()
	// kube-apiserver sends GET for what came over a WebSocket and POST for the rest.
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", node.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", node.serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", node.servePortForward)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", serveLog)
	server := http.Server{
		Addr:    address,
		Handler: mux,
		TLSConfig: &tls.Config{
			ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs:  clients,
			// Sessions are upgrades, which HTTP/2 does not have.
			NextProtos: []string{"http/1.1"},
		},
	}
	return server.ListenAndServeTLS(certificate, key)
}

// containers runs what pods are asked to as processes beside itself.
type containers struct {
	directory string
}

func (c containers) serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer session("exec", r)()
	remotecommand.ServeExec(w, r, c, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"],
		options, idleTimeout, streamTimeout, remotecommand.SupportedStreamingProtocols)
}

func (c containers) serveAttach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer session("attach", r)()
	remotecommand.ServeAttach(w, r, c, r.PathValue("pod"), "", r.PathValue("container"), options, idleTimeout,
		streamTimeout, remotecommand.SupportedStreamingProtocols)
}

func (c containers) servePortForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer session("port-forward", r)()
	portforward.ServePortForward(w, r, c, r.PathValue("pod"), "", options, idleTimeout, streamTimeout,
		portforward.SupportedProtocols)
}

// session says that one begins, and then that it has ended, by which protocol it came.
func session(kind string, r *http.Request) func() {
	log.Printf("%s of %s begins over %s", kind, r.PathValue("pod"), r.Header.Get("Upgrade"))
	return func() { log.Printf("%s of %s has ended", kind, r.PathValue("pod")) }
}

// ExecInContainer runs a command until it or its session ends.
func (c containers) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader,
	out, err io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(command) == 0 {
		return errors.New("no command")
	}
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Dir = c.directory
	// Interfaces that hold nothing must be none for os/exec.
	if out != nil {
		process.Stdout = out
	}
	if err != nil {
		process.Stderr = err
	}
	if in != nil {
		// Not process.Stdin, which would be waited for after the command has ended.
		pipe, err := process.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(pipe, in)
			_ = pipe.Close()
		}()
	}
	ended := process.Run()
	var exit *exec.ExitError
	if errors.As(ended, &exit) {
		return utilexec.CodeExitError{Err: ended, Code: exit.ExitCode()}
	}
	return ended
}

// AttachContainer attaches to what greets and then says what it is told.
func (c containers) AttachContainer(_ context.Context, name, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	if _, err := fmt.Fprintf(out, "this is %s\n", name); err != nil || in == nil {
		return err
	}
	_, err := io.Copy(out, in)
	return err
}

// PortForward joins a stream with a port of this machine.
func (c containers) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}

func serveLog(w http.ResponseWriter, r *http.Request) {
	follow := r.URL.Query().Get("follow") == "true"
	flush := http.NewResponseController(w).Flush
	number := 0
	line := func() {
		number++
		_, _ = fmt.Fprintf(w, "line %d of %s\n", number, r.PathValue("pod"))
	}
	for range 10 {
		line()
	}
	_ = flush()
	for follow {
		select {
		case <-r.Context().Done():
			log.Printf("the reader of the log of %s has gone", r.PathValue("pod"))
			return
		case <-time.After(100 * time.Millisecond):
			line()
			_ = flush()
		}
	}
}
