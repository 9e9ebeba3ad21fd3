package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/search"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/threads"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// LimitPages simulates a full disk: the database cannot grow beyond n pages. 0 removes the limit.
func (s *Store) LimitPages(n int) error {
	if n == 0 {
		n = 1<<32 - 2
	}
	return s.db.Writer.Do(context.Background(), func(t *txn.Tx) error {
		_, err := t.Exec(t.Ctx, fmt.Sprintf("PRAGMA max_page_count = %d", n))
		return err
	})
}

// SetBlockSeqs sets txn.BlockSeqs, so that few messages produce as many rows of message_block as thousands usually do.
func SetBlockSeqs(n int64) { txn.BlockSeqs = n }

// SetSlice sets messages.Slice, so that few messages take as many slices as thousands usually do.
func SetSlice(n int64) { messages.Slice = n }

// SetForkBounds sets messages.MaxSources and messages.MaxSegments.
func SetForkBounds(sources, segments int64) {
	messages.MaxSources, messages.MaxSegments = sources, segments
}

// SetRanked sets search.Ranked.
func SetRanked(n int64) { search.Ranked = n }

// SearchPlan returns how the database executes a search.
func (s *Store) SearchPlan(ctx context.Context, conditions string) (plan []string, err error) {
	return s.Plan(ctx, queries.SearchSQLite(conditions), "word", search.Ranked, 100, 0)
}

// SetCountedAtOnce sets how many rows a step of a count reads.
func SetCountedAtOnce(n int64) { countedAtOnce = n }

// CountQueries returns the queries of a count, with the number of their parameters.
func CountQueries() map[string]int {
	out := map[string]int{queries.ContentsSlice: 2}
	for _, t := range queries.CountedTables {
		out[t.Within()], out[t.EndOfSlice()], out[t.Rest()] = 3, 2, 1
	}
	return out
}

// RowsOf counts the rows of a table at once.
func (s *Store) RowsOf(ctx context.Context, table string) (n int64, err error) {
	return n, s.db.Readers.Row(ctx, "SELECT COUNT(*) FROM "+table, nil, &n)
}

// SetCompared sets search.Compared.
func SetCompared(n int64) { search.Compared = n }

// LeftOver returns the number of remnants of threads, which have no head, and of their messages.
func (s *Store) LeftOver(ctx context.Context) (threads, messages int, err error) {
	err = s.db.Readers.Read(ctx, func(c *sqldb.Conn) error {
		if err := c.Row(ctx, `SELECT count(*) FROM thread WHERE namespace = ''`, nil, &threads); err != nil {
			return err
		}
		return c.Row(ctx, `SELECT count(*) FROM message m JOIN thread t ON t.key = m.thread WHERE t.namespace = ''`, nil, &messages)
	})
	return threads, messages, err
}

// Plan returns how the database executes a query.
func (s *Store) Plan(ctx context.Context, query string, args ...any) (plan []string, err error) {
	err = s.db.Readers.Read(ctx, func(c *sqldb.Conn) error {
		return c.Rows(ctx, "EXPLAIN QUERY PLAN "+query, args, func(scan sqldb.Scanner) error {
			var id, parent, unused int
			var detail string
			err := scan(&id, &parent, &unused, &detail)
			plan = append(plan, detail)
			return err
		})
	})
	return plan, err
}

// Queries are the queries whose plans the tests check, with the number of their parameters.
var Queries = map[string]struct {
	Text string
	Args int
}{
	"thread":             {queries.Thread, 1},
	"head":               {queries.Head, 1},
	"children":           {queries.Children, 1},
	"child states":       {queries.ChildStates, 1 + queries.ChildrenAtOnce},
	"unfinished":         {queries.UnfinishedChildren, 1},
	"unfinished below":   {queries.UnfinishedBelow, 1},
	"working children":   {queries.WorkingChildren, 1},
	"children since":     {queries.ChildrenSince, 2},
	"living in scopes":   {queries.LivingInScopes, len(queries.ScopesOf("", "", "", ""))},
	"living kinds":       {queries.LivingKinds, len(queries.KindsOf("", ""))},
	"many changes":       {queries.ManyChanges, 2},
	"by name":            {queries.ThreadsByName, 2},
	"by name within":     {queries.ThreadsOfNamespaceByName, 3},
	"undeclared":         {queries.UndeclaredThreads, 2},
	"owned":              {queries.OwnedThreads, 3},
	"retained":           {queries.RetainedThreads, 3},
	"present by name":    {queries.PresentThreadsByName, 3},
	"by short id":        {queries.ThreadsByShort, 2},
	"by short id within": {queries.ThreadsOfNamespaceByShort, 3},
	"namespaces":         {queries.Namespaces, 0},
	"message":            {queries.Message, 2},
	"message by key":     {queries.MessageByKey, 2},
	"tool results":       {queries.ToolResults, 3},
	"events":             {queries.Events, 5},
	"lines":              {queries.Lines, 5},
	"newest lines":       {queries.NewestLines, 5},
	"count lines":        {queries.CountLines, 1},
	"oldest lines":       {queries.OldestLines, 2},
	"remove lines":       {queries.RemoveLines, 2},
	"inbox":              {queries.Inbox, 1},
	"inbox of":           {queries.InboxOf, 1},
	"inbox keyed":        {queries.InboxKeyed, 2},
	"inbox between":      {queries.InboxBetween, 3},
	"position":           {queries.Position, 1},
	"last edit":          {queries.LastEdit, 2},
	"runs":               {queries.Runs, 3},
	"value":              {queries.Value, 2},
	"files direct":       {queries.FilesDirect, 2},
	"files below":        {queries.FilesBelow, 3},
	"page direct":        {queries.PageDirect, 5},
	"page below":         {queries.PageBelow, 5},
	"bare direct":        {queries.BareDirect, 5},
	"bare below":         {queries.BareBelow, 5},
	"file":               {queries.File, 2},
	"digest used":        {queries.DigestUsed, 1},
	"work namespaces":    {queries.WorkNamespaces, 0},
	"work":               {queries.Work, 6},
	"waiting items":      {queries.WaitingItems, 0},
	"wakes":              {queries.Wakes, 2},
	"held in":            {queries.DelayedIn, 1},
	"end delays":         {queries.EndDelays, 1},
	"oldest due":         {queries.OldestDue, 2},
	"next firing":        {queries.NextFiring, 1},
	"claimable":          {queries.Claimable, 3},
	"last ended":         {queries.LastEnded, 1},
	"claimable keys":     {queries.ClaimableKeys, 3},
	"unended effects":    {queries.UnendedEffects, 2},
	"pending firings":    {queries.PendingFirings, 0},
	"due firings":        {queries.DueFirings, 4},
	"delete firings":     {queries.DeleteFirings, 1},
	"delete args":        {queries.DeleteArgs, 1},
	"firing":             {queries.Firing, 3},
	"firings":            {queries.Firings, 5},
	"active firings":     {queries.ActiveFirings, 5},
	"brief firings":      {queries.BriefFirings, 5},
	"brief active":       {queries.BriefActiveFirings, 5},
	"claimed firings":    {queries.ClaimedFirings, 1},
	"spent running":      {queries.SpentRunning, 3},
	"effect schedule":    {queries.EffectSchedule, 1},
	"skips":              {queries.Skips, 2},
	"skip before":        {queries.SkipBefore, 5},
	"fired between":      {queries.FiredBetween, 4},
	"args":               {queries.Args, 2},
	"stored args":        {queries.StoredArgs, 1},
	"sum of messages":    {queries.SumMessages, 1},
	"part to count":      {queries.PartToCount, 6},
	"purge messages":     {queries.PurgeMessages, 3},
	"sweep deltas":       {queries.SweepDeltas, 2},
	"sweep inbox keys":   {queries.SweepInboxKeys, 2},
	"purge files":        {queries.PurgeFiles, 3},
	"vectors":            {queries.Vectors, 7},
	"usage records":      {queries.UsageRecords, 4},
}

// PageQueries returns the queries of pages of messages, each with the number of its parameters.
func PageQueries() map[string]int {
	queries := map[string]int{}
	for _, q := range []store.MessageQuery{{}, {IncludeSilent: true}, {MaxDepth: 2}, {AllDepths: true}, {AllDepths: true, IncludeSilent: true}} {
		args := 5
		if q.MaxDepth > 0 {
			args++
		}
		queries[messages.SpanQuery(q, "")], queries[messages.SpanQuery(q, " DESC")] = args, args
	}
	return queries
}

// Panic runs a transaction that panics.
func (s *Store) Panic(ctx context.Context) error {
	return s.db.Writer.Do(ctx, func(*txn.Tx) error { panic("oops") })
}

// ListPlan returns how the database executes a list. by says that the filter selects few threads.
func (s *Store) ListPlan(ctx context.Context, q store.ThreadQuery, by bool) ([]string, error) {
	q.Limit = 50
	var f *threads.Filter
	if by {
		f = &threads.Filters(q)[0]
	}
	query, args := threads.ListQuery(q, f)
	return s.Plan(ctx, query, args...)
}
