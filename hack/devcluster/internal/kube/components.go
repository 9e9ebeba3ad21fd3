package kube

import (
	"context"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// The components are started below their cobra commands, which install signal handlers and exit the process. Feature
// gates and logging are shared by the whole process. The API server starts first and sets both.

func runAPIServer(ctx context.Context, l *listener, flags []string) error {
	o := apiserveroptions.NewServerRunOptions()
	if err := parse("kube-apiserver", o.Flags(), flags); err != nil {
		return err
	}
	o.SecureServing.Listener = l
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(o.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	return apiserver.Run(ctx, completed)
}

func runControllerManager(ctx context.Context, l *listener, flags []string) error {
	o, err := kcmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	all, off, aliases := kcm.KnownControllers(), kcm.ControllersDisabledByDefault(), kcm.ControllerAliases()
	fss := o.Flags(all, off, aliases)
	o.ParsedFlags = &fss
	if err := parse("kube-controller-manager", fss, flags); err != nil {
		return err
	}
	o.SecureServing.Listener = l
	c, err := o.Config(ctx, all, off, aliases)
	if err != nil {
		return err
	}
	return kcm.Run(ctx, c.Complete())
}

func runScheduler(ctx context.Context, l *listener, flags []string) error {
	o := scheduleroptions.NewOptions()
	if err := parse("kube-scheduler", *o.Flags, flags); err != nil {
		return err
	}
	o.SecureServing.Listener = l
	c, s, err := scheduler.Setup(ctx, o)
	if err != nil {
		return err
	}
	return scheduler.Run(ctx, c, s)
}

func parse(name string, fss cliflag.NamedFlagSets, flags []string) error {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	for _, f := range fss.FlagSets {
		fs.AddFlagSet(f)
	}
	return fs.Parse(flags)
}
