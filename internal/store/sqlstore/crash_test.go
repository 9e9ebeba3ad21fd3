package sqlstore_test

import (
	"bufio"
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest"
)

const (
	crashDirEnv   = "SKEIN_STORE_CRASH_DIR"
	crashRoundEnv = "SKEIN_STORE_CRASH_ROUND"
	crashSteps    = 10_000
)

var _ = Describe("SQLite under kill -9", Label("RUN-02"), func() {
	It("keeps every acknowledged write whole, at any point of ten thousand operations", func(ctx SpecContext) {
		dir := scratch.Folder(GinkgoT()) // what a killed process has written is there, in memory as on a disk
		var acknowledged []string
		kills := 0
		for ; len(acknowledged) < crashSteps; kills++ {
			acknowledged = append(acknowledged, writeAndKill(dir, kills+1)...)

			s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
			Expect(err).NotTo(HaveOccurred())
			Expect(storetest.CheckAcknowledged(ctx, s, acknowledged)).To(Succeed(), "after kill %d", kills+1)
			Expect(s.Ping(ctx)).To(Succeed())
			Expect(s.Close()).To(Succeed())
			Expect(integrity(dir)).To(Equal("ok"))
		}
		AddReportEntry("acknowledged transactions, kills", fmt.Sprint(len(acknowledged), ", ", kills))
	})
})

// writeAndKill runs a writing process, kills it after a random number of acknowledgements, and returns everything that
// it acknowledged.
func writeAndKill(dir string, round int) (acknowledged []string) {
	GinkgoHelper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDirEnv+"="+dir, fmt.Sprintf("%s=%d", crashRoundEnv, round))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(cmd.Start()).To(Succeed())
	killAfter := rand.IntN(800)
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // the last line may be incomplete
		}
		acknowledged = append(acknowledged, strings.TrimSpace(line))
		if len(acknowledged) == killAfter+1 {
			Expect(cmd.Process.Kill()).To(Succeed())
		}
	}
	var exit *exec.ExitError
	Expect(errors.As(cmd.Wait(), &exit)).To(BeTrue(), stderr.String())
	Expect(exit.Exited()).To(BeFalse(), stderr.String())
	return acknowledged
}

func integrity(dir string) (result string) {
	GinkgoHelper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "skein.db"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(db.Close()).To(Succeed()) }()
	Expect(db.QueryRow("PRAGMA integrity_check").Scan(&result)).To(Succeed())
	return result
}
