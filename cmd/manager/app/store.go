package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/store/sqlstore"
)

// openStore opens the database.
func (o *Options) openStore(ctx context.Context) (*sqlstore.Store, error) {
	if o.Store != StorePostgres {
		return sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: o.DataDir})
	}
	url, err := o.databaseURL()
	if err != nil {
		return nil, err
	}
	if o.BlobURL == "" || strings.HasPrefix(o.BlobURL, "file:") {
		o.Logger.Info("File contents are in a folder: with several replicas, share the folder between them or set --blob-url to a bucket, so that each replica has the files that others wrote",
			"folder", o.bucketFolder())
	}
	return sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: url, Log: o.Logger.WithName("store")})
}

// databaseURL returns the URL. Its errors never contain the URL.
func (o *Options) databaseURL() (string, error) {
	if o.DatabaseURLFile == "" {
		return strings.TrimSpace(os.Getenv(databaseURLEnv)), nil
	}
	b, err := os.ReadFile(o.DatabaseURLFile)
	if err != nil {
		return "", fmt.Errorf("--database-url-file: %w", err)
	}
	url := strings.TrimSpace(string(b))
	if url == "" {
		return "", fmt.Errorf("--database-url-file: %s is empty: it must hold the URL of the PostgreSQL database", o.DatabaseURLFile)
	}
	return url, nil
}

// bucketFolder returns the folder of file contents, when they are in a folder.
func (o *Options) bucketFolder() string {
	url, err := o.blobURL()
	if err != nil {
		return o.BlobURL
	}
	return strings.TrimPrefix(url, "file://")
}

// patience is how long another replica may take to stop, as in an update, before the log says that there must not be
// two.
const patience = 30 * time.Second

// oneReplica keeps a second replica on SQLite from becoming ready, and logs why: it would have separate data
// (K8S-05).
type oneReplica struct {
	elected <-chan struct{} // closed when this replica leads for the first time
	log     logr.Logger
	wait    time.Duration
}

var errSecondReplica = errors.New("another replica of the manager is active, and replicas on SQLite do not share their data: " +
	"run one replica, or keep the data in PostgreSQL (--store=postgres) to run more")

// check is the readiness check.
func (r *oneReplica) check(*http.Request) error {
	select {
	case <-r.elected:
		return nil
	default:
		return errSecondReplica
	}
}

// Start implements manager.Runnable.
func (r *oneReplica) Start(ctx context.Context) error {
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.elected:
	case <-timer.C:
		r.log.Error(errSecondReplica, "This replica does not become ready")
	}
	return nil
}

// NeedLeaderElection returns false, because it is about replicas that are not elected.
func (*oneReplica) NeedLeaderElection() bool { return false }

// addOneReplica adds the check where it is needed. Without leader election a replica knows nothing of others.
func (o *Options) addOneReplica(mgr ctrl.Manager, lead *leading) error {
	if o.Store != StoreSQLite || !o.LeaderElect {
		return nil
	}
	r := &oneReplica{elected: lead.elected, log: mgr.GetLogger(), wait: patience}
	return errors.Join(mgr.Add(r), mgr.AddReadyzCheck("replicas", r.check))
}
