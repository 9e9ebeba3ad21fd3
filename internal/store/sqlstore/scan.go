package sqlstore

import (
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

func scanFiring(scan sqldb.Scanner) (*store.Firing, error) {
	var f store.Firing
	var args sqldb.Text
	if err := scan(&f.EffectID, &f.Due, &f.ThreadID, &f.Namespace, &f.Name, &f.Effect, &args, &f.Status, &f.Attempts,
		&f.Error, &f.FiredAt, &f.EndedAt, &f.HookDepth); err != nil {
		return nil, err
	}
	f.Args = args.Raw()
	return &f, nil
}
