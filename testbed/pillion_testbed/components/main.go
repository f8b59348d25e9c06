// The components of a Kubernetes cluster in one binary, so that one link makes all of them and
// a machine that reaches nothing but package registries can have a real API server.
//
//	components etcd --data-dir ...
//	components kube-apiserver --etcd-servers ...
//	components kube-controller-manager --kubeconfig ...
//
//	components kubelet --config ...
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	components := map[string]func([]string) int{
		"etcd":                    etcd,
		"kube-apiserver":          command(apiserver.NewAPIServerCommand),
		"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kube-proxy":              command(proxy.NewProxyCommand),
		"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	}
	if len(os.Args) > 1 {
		if run, known := components[os.Args[1]]; known {
			os.Exit(run(os.Args[2:]))
		}
	}
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "usage: %s COMPONENT [FLAG ...]; components: %s\n", os.Args[0], strings.Join(names, ", "))
	os.Exit(2)
}

// Command makes a cobra command only when it is asked for: each registers flags that another would register again.
func command(make func() *cobra.Command) func([]string) int {
	return func(arguments []string) int {
		chosen := make()
		chosen.SetArgs(arguments)
		return cli.Run(chosen)
	}
}

func etcd(arguments []string) int {
	etcdmain.Main(append([]string{"etcd"}, arguments...))
	return 0
}
