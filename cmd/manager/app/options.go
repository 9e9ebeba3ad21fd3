// Package app assembles the manager: store, domain, engine, controllers and runtime API around one controller-runtime
// manager.
package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"

	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/eventlimit"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Where sandboxes run.
const (
	SandboxPods    = "pods"
	SandboxProcess = "process"
)

// Kinds of store.
const (
	// StoreSQLite keeps everything in one file below the data folder, for one replica.
	StoreSQLite = "sqlite"
	// StorePostgres keeps everything in a PostgreSQL database, for any number of replicas (K8S-05).
	StorePostgres = "postgres"
)

// databaseURLEnv is the variable that may hold the database's URL in place of a file.
const databaseURLEnv = "SKEIN_DATABASE_URL"

// disabled as a bind address switches a listener off.
const disabled = "0"

// DefaultNamespace is the manager's own namespace, unless POD_NAMESPACE is set.
const DefaultNamespace = "skein-system"

// Options are the options of the manager.
type Options struct {
	// Kubeconfig is a file. Empty means the first of $KUBECONFIG, the pod's own account and ~/.kube/config.
	Kubeconfig string
	// Config replaces all of these in tests.
	Config *rest.Config

	Store string // StoreSQLite or StorePostgres
	// DatabaseURLFile holds the URL of the PostgreSQL database. Empty means $SKEIN_DATABASE_URL. The URL contains a
	// password and is never logged.
	DatabaseURLFile string
	DataDir         string
	BlobURL         string // the bucket of file contents; empty means a folder below DataDir

	FileQuotaBytes string // for threads without a quota of their own, such as 1Gi; empty or 0 means no limit
	FileQuotaFiles int64

	Sandbox      string // SandboxPods or SandboxProcess
	SandboxImage string
	// SandboxV8Image is the image of pods whose SandboxPool has the v8 engine.
	SandboxV8Image string
	// SandboxDeno is the Deno program for the v8 engine with SandboxProcess. Without it there is no v8 engine.
	SandboxDeno string
	// SandboxImagePullPolicy is the pull policy of these images.
	SandboxImagePullPolicy string
	// SandboxPprofPort is where each sandbox pod serves profiles on its loopback interface; 0 means nowhere.
	SandboxPprofPort int

	RuntimeAPIBindAddress string
	// RuntimeAPILimits replace flow.Defaults, by their names.
	RuntimeAPILimits map[string]int
	// MemoryBudget is how much memory namespaces share, such as 400Mi. Empty means a part of the process's memory limit, and 0
	// means no limit.
	MemoryBudget string
	// Audit says which requests to the runtime API are recorded, and where. Without a policy file none are.
	Audit *genericoptions.AuditOptions
	// GatewayBindAddress is where ThreadGateways are served; empty or 0 means nowhere.
	GatewayBindAddress string
	// GatewayCertFile and GatewayKeyFile are the certificate of that listener. It speaks HTTP without them.
	GatewayCertFile, GatewayKeyFile string
	// GatewayTrustedProxies are the addresses, or ranges of them, from which gateways accept X-Forwarded-For and users.
	GatewayTrustedProxies  []string
	MetricsBindAddress     string
	HealthProbeBindAddress string

	// ToolAllowedHosts are the hosts that tools may reach. Empty means all hosts with public addresses.
	ToolAllowedHosts []string
	// ToolPrivateHosts are hosts that tools and models of every namespace may reach although their addresses are private or loopback.
	ToolPrivateHosts []string
	// ClusterRanges are ranges of the cluster's pods and Services that neither its Nodes nor its ServiceCIDRs name.
	ClusterRanges []string

	// EnvKeySecret names the Secret in the manager's namespace with the keys that seal variables.
	EnvKeySecret string

	LeaderElect bool
	// RetainedTTL is how long data without an object is kept. 0 means for ever.
	RetainedTTL time.Duration
	// DrainTimeout is how long work under way may take to finish when the manager stops.
	DrainTimeout time.Duration
	Workers      int // concurrent runs; 0 means the engine's default
	// NamespaceWorkers limits the concurrent runs of one namespace. 0 means no separate limit.
	NamespaceWorkers int
	// SubagentDepth, ThreadSubagents and NamespaceSubagents limit how deep subagents nest, and how many live at once. 0 means
	// the engine's default.
	SubagentDepth, ThreadSubagents, NamespaceSubagents int

	ThreadEffects    int // limits the ScheduledEffects of a thread that have not ended; 0 means no limit
	NamespaceEffects int // limits those of a namespace
	// NamespaceQuota are the quotas of namespaces, unless a ThreadQuota names the resource (K8S-11).
	NamespaceQuota map[string]string
	MaxQueued      int      // user messages that may wait in one thread (MSG-07)
	Namespaces     []string // empty means all
	// SecretsByBinding means that the manager reads Secrets only in namespaces where a RoleBinding allows it.
	SecretsByBinding bool
	Namespace        string // the manager's own namespace

	// TracingEndpoint is the URL of a collector of OpenTelemetry traces. Without it and without OTEL_EXPORTER_OTLP_ENDPOINT there are
	// no traces.
	TracingEndpoint string
	// TracingContent adds prompts, answers, arguments and results to the spans.
	TracingContent bool
	// PprofBindAddress is where profiles are served, on the loopback interface; empty or 0 means nowhere.
	PprofBindAddress string

	LogFormat string // json or text
	LogLevel  string // error, info or debug
	// Logger replaces the two in tests.
	Logger logr.Logger
	// Identity names this replica. An empty one is generated.
	Identity string
	// Started is called with the addresses of the listeners once all of them are open, for tests.
	Started func(Addresses)

	// memory is what namespaces share.
	memory *membudget.Budget
	// secrets are the values that are removed from everything that is written and shown.
	secrets *redact.Registry
	// events bounds the Events of each namespace.
	events *eventlimit.Limiter
	// account is the manager's name at the API server.
	account objects.Account
	// compile compiles the code of definitions.
	compile definitions.Compile
}

// Addresses are the addresses of the listeners. One that is switched off is nil.
type Addresses struct {
	RuntimeAPI net.Addr
	// CABundle is the PEM of the authority of the runtime API's certificate.
	CABundle []byte
}

// Defaults returns the default values of the flags.
func Defaults() Options {
	return Options{
		Store:                  StoreSQLite,
		DataDir:                "data",
		EnvKeySecret:           envkeys.DefaultSecret,
		Sandbox:                SandboxPods,
		SandboxImage:           "skein.dev/sandbox:dev",
		SandboxV8Image:         "skein.dev/sandbox-v8:dev",
		SandboxImagePullPolicy: string(corev1.PullIfNotPresent),
		RuntimeAPIBindAddress:  ":8444",
		MetricsBindAddress:     ":8080",
		HealthProbeBindAddress: ":8081",
		ThreadEffects:          kube.DefaultThreadEffects,
		NamespaceEffects:       kube.DefaultNamespaceEffects,
		MaxQueued:              5,
		DrainTimeout:           defaultDrain,
		RetainedTTL:            defaultRetainedTTL,
		Namespace:              DefaultNamespace,
		LogFormat:              "json",
		LogLevel:               "info",
	}
}

// Flags registers the flags for the options.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig `file` of the cluster; when empty, $KUBECONFIG or the pod's own service account")
	f.StringVar(&o.Store, "store", o.Store, "`kind` of store: sqlite, or postgres for more than one replica")
	f.StringVar(&o.DatabaseURLFile, "database-url-file", o.DatabaseURLFile, "`file` with the URL of the PostgreSQL database, postgres://user:password@host:5432/name?sslmode=verify-full; when empty, $"+databaseURLEnv)
	f.StringVar(&o.DataDir, "data-dir", o.DataDir, "`folder` of the store, and of file contents without --blob-url")
	f.StringVar(&o.BlobURL, "blob-url", o.BlobURL, "`URL` of the bucket for file contents, such as file:///var/lib/skein/blobs; when empty, a folder in --data-dir")
	f.StringVar(&o.FileQuotaBytes, "file-quota-bytes", o.FileQuotaBytes, "maximum `size` of the files of a thread without spec.fileQuota.bytes, such as 1Gi; no limit when empty")
	f.Int64Var(&o.FileQuotaFiles, "file-quota-files", o.FileQuotaFiles, "maximum `number` of files and folders of a thread without spec.fileQuota.files; no limit when 0")
	f.DurationVar(&o.RetainedTTL, "retained-ttl", o.RetainedTTL, "`time` after which data of deleted Threads with deletionPolicy: Retain is removed, unless a Thread has adopted it; 0 keeps it for ever")
	f.StringVar(&o.EnvKeySecret, "env-key-secret", o.EnvKeySecret, "`name` of the Secret, in the manager's namespace, with the keys that seal variables of threads; the manager creates it when it is missing")
	f.StringVar(&o.Sandbox, "sandbox", o.Sandbox, "where code runs: in pods, or with process in local processes, for a machine without a Kubernetes node")
	f.StringVar(&o.SandboxImage, "sandbox-image", o.SandboxImage, "`image` of sandbox pods whose SandboxPool names no image")
	f.StringVar(&o.SandboxV8Image, "sandbox-v8-image", o.SandboxV8Image, "`image` of sandbox pods whose SandboxPool has the engine v8 and names no image")
	f.StringVar(&o.SandboxDeno, "sandbox-deno", o.SandboxDeno, "the Deno `program`, which --sandbox=process needs for threads of pools with the engine v8")
	f.StringVar(&o.SandboxImagePullPolicy, "sandbox-image-pull-policy", o.SandboxImagePullPolicy, "pull `policy` of the images of sandbox pods: Always, IfNotPresent or Never")
	f.IntVar(&o.SandboxPprofPort, "sandbox-pprof-port", o.SandboxPprofPort, "`port` at which each sandbox pod serves profiles on its loopback interface, such as 6061; no profiles when 0")
	f.StringVar(&o.RuntimeAPIBindAddress, "runtime-api-bind-address", o.RuntimeAPIBindAddress, "`address` of the runtime API; 0 switches it off")
	f.StringToIntVar(&o.RuntimeAPILimits, flagLimits, o.RuntimeAPILimits, "limits of requests to the runtime API in each replica, as `limit=number`; the defaults are userRate=500,userOpen=100,namespaceOpen=200,userLasting=1000,namespaceLasting=2000,userSearches=60,searchesOpen=16; 0 for no limit")
	f.StringVar(&o.MemoryBudget, flagMemoryBudget, o.MemoryBudget, "`size` of the memory that the values, pages, streams and conversations of all namespaces share, such as 400Mi; when empty, 45 % of the process's memory limit, or 1Gi without such a limit; no limit when 0")
	if o.Audit == nil {
		o.Audit = genericoptions.NewAuditOptions()
	}
	o.Audit.AddFlags(f) // --audit-policy-file, --audit-log-path and others, as of an API server
	f.StringVar(&o.GatewayBindAddress, "gateway-bind-address", o.GatewayBindAddress, "`address` at which ThreadGateways serve people without a Kubernetes identity; no gateways when empty")
	f.StringVar(&o.GatewayCertFile, "gateway-tls-cert-file", o.GatewayCertFile, "`file` with the certificate of the gateways' listener, followed by those of its authorities; the manager reads it again when it changes; the listener speaks HTTP without it")
	f.StringVar(&o.GatewayKeyFile, "gateway-tls-key-file", o.GatewayKeyFile, "`file` with the key of that certificate")
	f.StringSliceVar(&o.GatewayTrustedProxies, "gateway-trusted-proxies", o.GatewayTrustedProxies, "`address`, or range such as 10.0.0.0/16, of a proxy in front of the gateways; gateways accept X-Forwarded-For and the header with the user only from such an address")
	f.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "`address` of the metrics; 0 switches them off")
	f.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "`address` of /healthz and /readyz; 0 switches them off")
	f.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "elect one replica to run the controllers")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "`time` that calls of models, tools and code get to finish when the manager stops; set terminationGracePeriodSeconds to half a minute more")
	f.IntVar(&o.Workers, "workers", o.Workers, "maximum `number` of concurrent runs (default 1250); a fifth of them is reserved for namespaces without a run")
	f.IntVar(&o.NamespaceWorkers, "namespace-workers", o.NamespaceWorkers, "maximum `number` of concurrent runs of one namespace; when 0, only --workers limits them")
	f.IntVar(&o.ThreadEffects, "thread-effects", o.ThreadEffects, "maximum `number` of ScheduledEffects of one thread that have not ended; at this number, code, models and the API cannot schedule another; 0 for no limit")
	f.IntVar(&o.NamespaceEffects, "namespace-effects", o.NamespaceEffects, "maximum `number` of ScheduledEffects of one namespace that have not ended; at this number, code, models and the API cannot schedule another; 0 for no limit")
	f.StringToStringVar(&o.NamespaceQuota, kube.FlagNamespaceQuota, o.NamespaceQuota, "quotas of each namespace, as `resource=amount`, for resources that no ThreadQuota of the namespace names, such as threads=10000,runningThreads=100,bytes=50Gi,messageBytes=10Gi,tokensPerDay=50000000,costPerDay=200,pendingEffects=10000")
	f.IntVar(&o.SubagentDepth, "subagent-depth", o.SubagentDepth, "maximum `number` of levels of nested subagents (default 5)")
	f.IntVar(&o.ThreadSubagents, "thread-subagents", o.ThreadSubagents, "maximum `number` of living subagents of one thread (default 100)")
	f.IntVar(&o.NamespaceSubagents, "namespace-subagents", o.NamespaceSubagents, "maximum `number` of living subagents of all threads of one namespace (default 10000)")
	f.IntVar(&o.MaxQueued, "max-queued-messages", o.MaxQueued, "maximum `number` of user messages that wait in one thread; -1 for no limit")
	f.StringSliceVar(&o.ToolAllowedHosts, outbound.FlagAllowed, o.ToolAllowedHosts, "`host`, such as api.example.com, *.example.com or api.example.com:8443, that HTTP and MCP tools may reach; when empty, every host with a public address")
	f.StringSliceVar(&o.ToolPrivateHosts, outbound.FlagPrivate, o.ToolPrivateHosts, "`host`, such as tools.example.svc, that HTTP and MCP tools and models may reach although its address is private or loopback")
	f.StringSliceVar(&o.ClusterRanges, flagClusterRanges, o.ClusterRanges, "`range` of addresses of the cluster's pods or Services, such as 2001:db8:10::/56, which counts as private; the manager knows those of Nodes and ServiceCIDRs by itself")
	f.StringSliceVar(&o.Namespaces, "namespaces", o.Namespaces, "`namespace` to serve; all namespaces when empty")
	f.BoolVar(&o.SecretsByBinding, flagSecretsByBinding, o.SecretsByBinding, "read Secrets only in namespaces with a RoleBinding of the manager to the ClusterRole "+objects.RoleSecretReader+"; set it when the manager may not read the Secrets of all namespaces")
	f.StringVar(&o.TracingEndpoint, "tracing-endpoint", o.TracingEndpoint, "`URL` of a collector of OpenTelemetry traces, such as http://collector:4318; when empty, $OTEL_EXPORTER_OTLP_ENDPOINT; no traces without both")
	f.BoolVar(&o.TracingContent, "tracing-content", o.TracingContent, "add prompts, answers, arguments and results to traces, without the values of secrets")
	f.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress, "loopback `address` at which the manager serves profiles, such as 127.0.0.1:6060; no profiles when empty")
	f.StringVar(&o.LogFormat, "log-format", o.LogFormat, "format of the log: json or text")
	f.StringVar(&o.LogLevel, "log-level", o.LogLevel, "level of the log: error, info or debug")
}

// validate returns all errors in the flags at once.
func (o *Options) validate() error {
	var errs []error
	oneOf := func(flag, value string, allowed ...string) {
		for _, a := range allowed {
			if value == a {
				return
			}
		}
		errs = append(errs, fmt.Errorf("--%s=%s: give %s", flag, value, strings.Join(allowed, " or ")))
	}
	oneOf("store", o.Store, StoreSQLite, StorePostgres)
	switch given := o.DatabaseURLFile != "" || os.Getenv(databaseURLEnv) != ""; {
	case o.Store == StorePostgres && !given:
		errs = append(errs, errors.New("--store=postgres: give the database's URL in --database-url-file or $"+databaseURLEnv))
	case o.Store == StorePostgres && o.DatabaseURLFile != "" && os.Getenv(databaseURLEnv) != "":
		errs = append(errs, errors.New("the database's URL is set twice: remove --database-url-file or unset $"+databaseURLEnv))
	case o.Store == StoreSQLite && given:
		errs = append(errs, errors.New("a database URL is set, but the store is SQLite: set --store=postgres too"))
	}
	oneOf("sandbox", o.Sandbox, SandboxPods, SandboxProcess)
	oneOf("sandbox-image-pull-policy", o.SandboxImagePullPolicy, string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever))
	oneOf("log-format", o.LogFormat, "json", "text")
	oneOf("log-level", o.LogLevel, "error", "info", "debug")
	if o.DataDir == "" {
		errs = append(errs, errors.New("--data-dir: set a folder for the store"))
	}
	if o.Sandbox == SandboxPods && o.SandboxImage == "" {
		errs = append(errs, errors.New("--sandbox-image: set the image of sandbox pods"))
	}
	if o.Sandbox == SandboxPods && o.SandboxV8Image == "" {
		errs = append(errs, errors.New("--sandbox-v8-image: set the image of sandbox pods with the engine v8"))
	}
	if _, err := o.fileQuota(); err != nil {
		errs = append(errs, err)
	}
	if _, err := kube.ParseQuotas(o.NamespaceQuota); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.runtimeAPILimits(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.memoryBudget(); err != nil {
		errs = append(errs, err)
	}
	if err := o.checkAudit(); err != nil {
		errs = append(errs, err)
	}
	if err := o.checkTelemetry(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.toolPolicy(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.trustedProxies(); err != nil {
		errs = append(errs, err)
	}
	if msgs := validation.IsDNS1123Subdomain(o.EnvKeySecret); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--env-key-secret=%s: %s", o.EnvKeySecret, msgs[0]))
	}
	if o.RetainedTTL < 0 {
		errs = append(errs, fmt.Errorf("--retained-ttl=%s: give a time such as 2160h, or 0 to keep retained data for ever", o.RetainedTTL))
	}
	if o.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("--drain-timeout=%s: give a time such as 60s, or 0 to cut off what is under way", o.DrainTimeout))
	}
	if o.Workers < 0 {
		errs = append(errs, fmt.Errorf("--workers=%d: give a positive number", o.Workers))
	}
	for flag, n := range map[string]int{"subagent-depth": o.SubagentDepth, "thread-subagents": o.ThreadSubagents, "namespace-subagents": o.NamespaceSubagents} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("--%s=%d: give a positive number, or leave it out for the default", flag, n))
		}
	}
	if o.NamespaceWorkers < 0 {
		errs = append(errs, fmt.Errorf("--namespace-workers=%d: give a positive number, or 0 so that only --workers limits them", o.NamespaceWorkers))
	}
	if o.ThreadEffects < 0 {
		errs = append(errs, fmt.Errorf("--thread-effects=%d: give a positive number, or 0 for no limit", o.ThreadEffects))
	}
	if o.NamespaceEffects < 0 {
		errs = append(errs, fmt.Errorf("--namespace-effects=%d: give a positive number, or 0 for no limit", o.NamespaceEffects))
	}
	if o.MaxQueued == 0 || o.MaxQueued < -1 {
		errs = append(errs, fmt.Errorf("--max-queued-messages=%d: give a positive number, or -1 for no limit", o.MaxQueued))
	}
	for flag, address := range map[string]string{
		"runtime-api-bind-address": o.RuntimeAPIBindAddress, "metrics-bind-address": o.MetricsBindAddress, "health-probe-bind-address": o.HealthProbeBindAddress,
		"gateway-bind-address": o.GatewayBindAddress,
	} {
		if address == disabled || address == "" && flag == "gateway-bind-address" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			errs = append(errs, fmt.Errorf("--%s=%s: give host:port, :port, or 0 for none", flag, address))
		}
	}
	switch {
	case (o.GatewayCertFile == "") != (o.GatewayKeyFile == ""):
		errs = append(errs, errors.New("--gateway-tls-cert-file and --gateway-tls-key-file: give both, or neither for HTTP"))
	case o.GatewayCertFile != "" && !o.servesGateways():
		errs = append(errs, errors.New("--gateway-tls-cert-file: there is no listener; give --gateway-bind-address too, such as :8090"))
	}
	if len(o.Namespaces) > 1 {
		errs = append(errs, errors.New("--namespaces: a manager serves one namespace or all of them; run one manager for each namespace, or leave the flag out"))
	}
	for _, ns := range o.Namespaces {
		if msgs := validation.IsDNS1123Label(ns); len(msgs) > 0 {
			errs = append(errs, fmt.Errorf("--namespaces=%s: %s", ns, msgs[0]))
		}
	}
	return errors.Join(errs...)
}

// blobURL returns the URL of the bucket of file contents.
func (o *Options) blobURL() (string, error) {
	if o.BlobURL != "" {
		return o.BlobURL, nil
	}
	dir, err := filepath.Abs(filepath.Join(o.DataDir, "blobs"))
	if err != nil {
		return "", fmt.Errorf("--data-dir=%s: %w", o.DataDir, err)
	}
	return "file://" + filepath.ToSlash(dir), nil
}
