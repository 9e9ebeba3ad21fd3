package scheduledeffect

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/skein-dev/skein/internal/recurrence"
	"github.com/skein-dev/skein/internal/store"
)

// limited returns which daily limit keeps the due times of a day from firing, or "".
func (d *schedule) limited(day string) string {
	limit := d.object.Spec.DailyLimit
	if limit == nil {
		return ""
	}
	if fired := d.firedOn(day); limit.Firings != nil && fired >= *limit.Firings {
		return fmt.Sprintf("%d firings on %s, which is the limit", fired, day)
	}
	if limit.Cost != nil {
		most, err := strconv.ParseFloat(*limit.Cost, 64)
		if cost := d.spent[day]; err == nil && cost >= most {
			return fmt.Sprintf("a cost of %.2f on %s, of at most %s", cost, day, *limit.Cost)
		}
	}
	return ""
}

// firedOn returns how many due times of a day have fired. Only the newest day is counted.
func (d *schedule) firedOn(day string) int64 {
	if day != d.now.Day {
		return 0
	}
	return d.now.DayFired
}

// day makes the day of a due time the one that is counted.
func (b *batch) day(due time.Time) {
	if day := b.dayOf(due); day != b.now.Day {
		b.now.Day, b.now.DayFired = day, 0
	}
}

func (d *schedule) dayOf(t time.Time) string {
	loc, err := recurrence.Location(d.object.Spec.TimeZone)
	if err != nil {
		loc = time.UTC
	}
	return t.In(loc).Format(time.DateOnly)
}

// spending returns the cost of the ended firings by their day, when a limit asks for it.
func (r *Reconciler) spending(ctx context.Context, d *schedule) (map[string]float64, error) {
	if l := d.object.Spec.DailyLimit; l == nil || l.Cost == nil {
		return nil, nil
	}
	all, err := r.Store.Firings(ctx, store.FiringQuery{EffectID: d.now.EffectID, Limit: int(d.now.DayFired) + recentFirings, Brief: true})
	if err != nil {
		return nil, fmt.Errorf("read the cost of the day: %w", err)
	}
	spent := map[string]float64{}
	for i := range all {
		spent[d.dayOf(time.UnixMicro(all[i].Due))] += all[i].Cost
	}
	return spent, nil
}
