package sqlstore_test

import (
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store/sqlstore"
)

// ruled is the first migration to which the rules of docs/adr/0053-neighbouring-versions.md apply. Those before were there first.
const ruled = 33

var (
	createTable = regexp.MustCompile(`(?i)\bCREATE TABLE (?:IF NOT EXISTS )?(\w+)`)
	createIndex = regexp.MustCompile(`(?i)\bCREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(IF NOT EXISTS )?(\w+) ON (\w+)`)
	contracts   = regexp.MustCompile(`(?i)\bDROP TABLE\b|\bDROP COLUMN\b|\bRENAME\b|\bSET NOT NULL\b|\bALTER COLUMN \w+ (?:SET DATA )?TYPE\b|\bADD COLUMN \w+ [^;,]*\bNOT NULL\b`)
	defaults    = regexp.MustCompile(`(?i)\bNOT NULL\b[^;,]*\bDEFAULT\b|\bDEFAULT\b[^;,]*\bNOT NULL\b`)
	rewrites    = regexp.MustCompile(`(?i)^\s*UPDATE (\w+)`)
	comments    = regexp.MustCompile(`--[^\n]*`)
)

// faults returns what is wrong with a migration of a kind of database.
func faults(kind, text string) (wrong []string) {
	alone := strings.Contains(text, "+goose NO TRANSACTION")
	up, _, _ := strings.Cut(text, "-- +goose Down")
	up = comments.ReplaceAllString(up, "")
	made := map[string]bool{}
	for _, m := range createTable.FindAllStringSubmatch(up, -1) {
		made[m[1]] = true
	}
	raises := strings.Contains(up, "schema_reader")
	for _, statement := range strings.Split(up, ";") {
		if c := contracts.FindString(statement); c != "" && !raises && !defaults.MatchString(statement) {
			wrong = append(wrong, c+" takes away what the release before uses: do it a release later, and raise schema_reader.minimum in the same migration")
		}
		if kind != "postgres" {
			continue
		}
		if m := rewrites.FindStringSubmatch(statement); m != nil && !made[m[1]] && m[1] != "schema_reader" {
			wrong = append(wrong, "UPDATE "+m[1]+" writes all rows of a table in one transaction: fill them in when they are next written, or in slices")
		}
		m := createIndex.FindStringSubmatch(statement)
		switch {
		case m == nil || made[m[4]]:
		case m[1] == "":
			wrong = append(wrong, "the index "+m[3]+" blocks writes to "+m[4]+" while it is built: use CREATE INDEX CONCURRENTLY")
		case !strings.Contains(up, "DROP INDEX CONCURRENTLY IF EXISTS "+m[3]):
			wrong = append(wrong, "the index "+m[3]+" may be there, invalid, from a build that was cut off: write DROP INDEX CONCURRENTLY IF EXISTS "+m[3]+" before it")
		case !alone:
			wrong = append(wrong, "the index "+m[3]+" cannot be built concurrently in a transaction: begin with -- +goose NO TRANSACTION")
		}
	}
	if alone && regexp.MustCompile(`(?i)\b(CREATE TABLE|ALTER TABLE|INSERT|UPDATE|DELETE)\b`).MatchString(up) {
		wrong = append(wrong, "without a transaction nothing but indexes: the rest could be applied in part")
	}
	return wrong
}

var _ = Describe("Migrations", Label("K8S-10"), func() {
	for _, kind := range []string{"sqlite", "postgres"} {
		It("of "+kind+" keep what the release before uses, and do not block", func() {
			files, err := sqlstore.Migrations(kind)
			Expect(err).NotTo(HaveOccurred())
			names, err := fs.Glob(files, "*.sql")
			Expect(err).NotTo(HaveOccurred())
			for _, name := range names {
				number, _, _ := strings.Cut(name, "_")
				n, err := strconv.Atoi(number)
				Expect(err).NotTo(HaveOccurred())
				if n < ruled {
					continue
				}
				text, err := fs.ReadFile(files, name)
				Expect(err).NotTo(HaveOccurred())
				Expect(faults(kind, string(text))).To(BeEmpty(), name+" (CONTRIBUTING.md, How to add a migration)")
			}
		})
	}

	DescribeTable("that break the rules are found", func(text, fault string) {
		found := faults("postgres", text)
		if fault == "" {
			Expect(found).To(BeEmpty())
		} else {
			Expect(found).To(ContainElement(ContainSubstring(fault)))
		}
	},
		Entry("an index that locks", "-- +goose Up\nCREATE INDEX i ON run (state);", "blocks writes to run"),
		Entry("an index of a new table", "-- +goose Up\nCREATE TABLE t (a BIGINT);\nCREATE UNIQUE INDEX i ON t (a);", ""),
		Entry("an index that cannot be repeated", "-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY i ON run (state);", "DROP INDEX CONCURRENTLY IF EXISTS i"),
		Entry("an index in a transaction", "-- +goose Up\nDROP INDEX CONCURRENTLY IF EXISTS i;\nCREATE INDEX CONCURRENTLY i ON run (state);", "NO TRANSACTION"),
		Entry("an index as it should be", "-- +goose NO TRANSACTION\n-- +goose Up\nDROP INDEX CONCURRENTLY IF EXISTS i;\nCREATE INDEX CONCURRENTLY i ON run (state);", ""),
		Entry("more than an index", "-- +goose NO TRANSACTION\n-- +goose Up\nALTER TABLE run ADD COLUMN a BIGINT;", "could be applied in part"),
		Entry("a column that goes", "-- +goose Up\nALTER TABLE run DROP COLUMN usage;", "a release later"),
		Entry("a column that goes when it may", "-- +goose Up\nALTER TABLE run DROP COLUMN usage;\nUPDATE schema_reader SET minimum = 40;", ""),
		Entry("a column that goes on the way down", "-- +goose Up\nALTER TABLE run ADD COLUMN a BIGINT NOT NULL DEFAULT 0;\n-- +goose Down\nALTER TABLE run DROP COLUMN a;", ""),
		Entry("a column that older releases do not fill", "-- +goose Up\nALTER TABLE run ADD COLUMN a BIGINT NOT NULL;", "takes away"),
		Entry("a table that is renamed", "-- +goose Up\nALTER TABLE run RENAME TO runs;", "takes away"),
		Entry("all rows at once", "-- +goose Up\nUPDATE file_usage SET bytes = 0;", "all rows"),
	)
})
