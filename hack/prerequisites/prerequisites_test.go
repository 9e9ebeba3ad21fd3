// Package prerequisites tests hack/prerequisites.sh by removing one thing after the other from a machine.
package prerequisites

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is what the script sees: the programs in PATH, a tree that replaces /proc, /sys, /lib and /dev, and its
// environment.
type machine struct {
	t             *testing.T
	bin, tree     string
	env           []string
	stdout, error string
}

// newMachine returns a machine that lacks nothing, with a node. Parts that the tests do not replace are those of this
// machine.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, bin: t.TempDir(), tree: t.TempDir()}
	for _, name := range []string{
		"awk", "bash", "cat", "dirname", "env", "git", "go", "grep", "head", "ls", "make", "paste", "printf", "sed", "sh", "timeout",
	} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.program("gcc", "")
	m.program("nft", "")
	m.program("apt-get", "")
	for _, name := range []string{"node", "npm", "openssl", "initdb", "postgres", "chromium"} {
		m.program(name, "")
	}
	m.program("du", "echo 0 $3")
	m.program("df", `echo header; echo /dev/disk 0 0 99999999 0% /`)
	m.system("Linux", "6.1.0-13-amd64", "x86_64")
	m.user(0, "root")
	m.file("dev/kmsg", "")
	m.memory(16 << 20)
	return m
}

// program replaces a program by a shell script.
func (m *machine) program(name, script string) {
	m.t.Helper()
	file := filepath.Join(m.bin, name)
	_ = os.Remove(file)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		m.t.Fatal(err)
	}
}

// without removes programs.
func (m *machine) without(names ...string) {
	m.t.Helper()
	for _, name := range names {
		if err := os.Remove(filepath.Join(m.bin, name)); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) file(name, text string) {
	m.t.Helper()
	file := filepath.Join(m.tree, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) system(name, kernel, processor string) {
	m.t.Helper()
	m.program("uname", fmt.Sprintf("case $1 in -s) echo %s ;; -r) echo %s ;; -m) echo %s ;; esac", name, kernel, processor))
}

func (m *machine) user(id int, name string) {
	m.t.Helper()
	m.program("id", fmt.Sprintf("case $1 in -u) echo %d ;; -un) echo %s ;; esac", id, name))
}

func (m *machine) memory(kib int) {
	m.t.Helper()
	m.file("proc/meminfo", fmt.Sprintf("MemTotal: %d kB\nMemFree: 1 kB\nSwapTotal: 0 kB\n", kib))
}

// goVersion replaces Go by another version, which only reports its settings.
func (m *machine) goVersion(version, toolchain string) {
	m.t.Helper()
	m.program("go", fmt.Sprintf(`case $* in
"env GOTOOLCHAIN") echo %[2]s ;;
env*) echo %[1]s; echo /cache; echo /modules; echo ;;
list*) echo v1 ;;
esac`, version, toolchain))
}

// run runs the script for a command, and reports whether the machine has everything.
func (m *machine) run(what string) bool {
	m.t.Helper()
	cmd := exec.Command("../prerequisites.sh", what)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	for _, v := range os.Environ() {
		// What runs the tests has its own.
		if name, _, _ := strings.Cut(v, "="); name != "PATH" && name != "NODE" && name != "MAKELEVEL" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(cmd.Env, "PATH="+m.bin, "PREREQUISITES_ROOT="+m.tree), m.env...)
	err := cmd.Run()
	m.stdout, m.error = stdout.String(), stderr.String()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		m.t.Fatalf("%v\n%s", err, m.error)
	}
	return err == nil
}

// lacks runs the script and compares what it reports as missing: each problem with its remedy.
func (m *machine) lacks(what string, want ...string) {
	m.t.Helper()
	ok := m.run(what)
	if ok != (len(want) == 0) || strings.Count(m.error, "  - ") != len(want)/2 || m.stdout != "" {
		m.t.Errorf("%s: %v\n%s%s", what, ok, m.stdout, m.error)
	}
	for _, text := range want {
		if !strings.Contains(m.error, text) {
			m.t.Errorf("%s: no %q in\n%s", what, text, m.error)
		}
	}
}

// says compares the output of the script when the machine has everything.
func (m *machine) says(what, want string) {
	m.t.Helper()
	if !m.run(what) || m.stdout != "" || !strings.Contains(m.error, want) || (want == "") != (m.error == "") {
		m.t.Errorf("%s: no %q in\n%s%s", what, want, m.stdout, m.error)
	}
}

func TestNothingIsSaidWhenAllIsWell(t *testing.T) {
	for _, what := range []string{"build", "demo", "test"} {
		newMachine(t).says(what, "")
	}
}

func TestEachMissingProgram(t *testing.T) {
	for name, remedy := range map[string]string{
		"git": "Run: apt-get install git", "make": "Run: apt-get install make", "gcc": "Run: apt-get install gcc", "go": "https://go.dev/dl",
	} {
		for _, what := range []string{"demo", "test"} {
			m := newMachine(t)
			m.without(name)
			missing := name
			if name == "go" {
				missing = "Go 1."
			}
			m.lacks(what, "- "+missing, remedy)
		}
	}
}

// Root on Debian gets these when a test needs them.
func TestEachMissingProgramOfTests(t *testing.T) {
	for name, of := range map[string][2]string{
		"node": {"- node, for tests", "nodejs"}, "npm": {"- npm, for tests", "npm"}, "openssl": {"- openssl, to check", "openssl"}, "initdb": {"- PostgreSQL's server", "postgresql"},
		"chromium": {"- Chromium, for tests", "chromium"},
	} {
		m := newMachine(t)
		m.without(name)
		m.says("test", "")
		m.user(1000, "ann")
		m.says("demo", "Without a real node")
		m.lacks("test", of[0], "Run: sudo apt-get install "+of[1])
		m.user(0, "root")
		m.without("apt-get")
		m.lacks("test", of[0], "Install "+of[1]+" with the package manager")
	}
}

func TestEverythingIsSaidAtOnce(t *testing.T) {
	m := newMachine(t)
	m.without("git", "make", "gcc", "go", "apt-get")
	m.program("df", `echo header; echo /dev/disk 0 0 1048576 0% /data`)
	m.memory(1 << 20)
	m.system("Linux", "6.1.0", "riscv64")
	m.lacks("test",
		"- An x86-64 or arm64 processor: this is riscv64", "Use another machine",
		"- git", "Install git with the package manager",
		"- make", "Install make",
		"- gcc", "Install gcc",
		"- Go 1.", "https://go.dev/dl",
		"GB free on /data, where it has 1 GB", "GOCACHE",
		"- 8 GB of memory", "add swap")
}

func TestOldGo(t *testing.T) {
	m := newMachine(t)
	m.goVersion("go1.20.14", "")
	m.lacks("demo", "- Go 1.26 or later: this is Go 1.20.14", "https://go.dev/dl")
	m.goVersion("go1.25.1", "local")
	m.lacks("demo", "this is Go 1.25.1, and GOTOOLCHAIN=local", "go env -w GOTOOLCHAIN=auto")
	for _, v := range []string{"go1.25.1", "go1.26rc1", "go1.26.8", "go1.27.0", "go2.0"} {
		m.goVersion(v, "auto")
		m.says("demo", "")
	}
}

func TestNoNetwork(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	m.env = []string{"GOMODCACHE=" + t.TempDir(), "GOPROXY=" + nobody, "GOFLAGS="}
	m.lacks("demo", "- The network: Go modules are missing", "HTTPS_PROXY")
	if strings.Contains(m.error, nobody) {
		t.Errorf("it names the proxy:\n%s", m.error)
	}
	m.env[1] = "GOPROXY=off"
	m.lacks("demo", "while GOPROXY is off", "go env -w GOPROXY=")
	m.env[2] = "GOFLAGS=-mod=vendor"
	m.says("demo", "")
	// The modules of this test itself are in the cache.
	m.env = []string{"GOPROXY=" + nobody}
	m.says("build", "")
}

func TestLittleDiskSpace(t *testing.T) {
	m := newMachine(t)
	m.env = []string{"SKEIN_CACHE=" + t.TempDir()}
	m.program("df", `echo header; echo /dev/disk 0 0 3000000 0% /`)
	m.lacks("demo", "- Disk space: 10 GB free on /, where it has 2 GB", "GOCACHE, GOMODCACHE and SKEIN_CACHE")
	// The contents of the caches need not fit again.
	m.program("du", "echo 4000000 $3")
	m.says("demo", "")
	// Each file system is checked separately.
	m = newMachine(t)
	cache := t.TempDir()
	m.env = []string{"SKEIN_CACHE=" + t.TempDir(), "GOCACHE=" + cache + "/not/there/yet"}
	m.program("df", fmt.Sprintf(`echo header; case $2 in %s) echo /dev/b 0 0 2000000 0%% /small ;; *) echo /dev/a 0 0 9000000 0%% / ;; esac`, cache))
	m.lacks("demo", "- Disk space: 7 GB free on /small, where it has 1 GB.", "Free some")
}

func TestLittleMemory(t *testing.T) {
	m := newMachine(t)
	m.memory(2 << 20)
	m.lacks("demo", "- 6 GB of memory and swap: there are 2 GB", "more memory")
	m.memory(6<<20 - 300_000) // as a machine of 6 GB reports it
	m.says("demo", "")
	m.memory(64 << 20)
	m.file("sys/fs/cgroup/memory.max", "max\n")
	m.says("demo", "")
	m.file("sys/fs/cgroup/memory.max", "2147483648\n")
	m.lacks("demo", "there are 2 GB", "more memory")
}

func TestUnsupportedSystem(t *testing.T) {
	m := newMachine(t)
	m.system("Darwin", "24.1.0", "arm64")
	m.lacks("build", "- Linux: this is Darwin", "virtual machine")
	m.system("Linux", "3.10.0-1160.el7.x86_64", "x86_64")
	m.lacks("build", "- Linux 4.19 or later: this is 3.10.0", "Update the kernel")
	m.system("Linux", "6.1.0", "i686")
	m.lacks("build", "this is i686", "another machine")
	m.system("Linux", "6.1.0", "aarch64")
	m.says("build", "")
}

// Without a node, code runs in local processes. The script reports that; it is an error only when a node was
// requested.
func TestNoNode(t *testing.T) {
	for name, c := range map[string]struct {
		take func(m *machine)
		why  string
	}{
		"not root":        {func(m *machine) { m.user(1000, "ann") }, "needs root, and this is user ann"},
		"no /dev/kmsg":    {func(m *machine) { m.kmsg() }, "needs /dev/kmsg"},
		"nft refuses":     {func(m *machine) { m.program("nft", "exit 1") }, "needs nftables"},
		"no nftables":     {func(m *machine) { m.without("nft"); m.file("lib/modules/6.1.0-13-amd64/modules.builtin", "x\n") }, "needs nftables"},
		"an older kernel": {func(m *machine) { m.system("Linux", "5.10.0", "x86_64") }, "needs Linux 5.13 or later, and this is 5.10.0"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c.take(m)
			m.without("gcc") // without a node nothing is compiled with it
			m.says("demo", "Without a real node, the code of threads runs in local processes: a real node "+c.why)
			m.says("test", "the tests that need one are skipped: a real node "+c.why)
			m.says("build", "")
			m.env = []string{"NODE=false"}
			m.says("demo", "")
			m.env = []string{"NODE=true"}
			m.program("gcc", "")
			m.lacks("demo", "- A real node, which NODE=true asks for: a real node "+c.why, "leave NODE=true out")
		})
	}
	m := newMachine(t)
	m.without("nft")
	m.file("lib/modules/6.1.0-13-amd64/modules.builtin", "")
	m.file("lib/modules/6.1.0-13-amd64/modules.dep", "kernel/net/netfilter/nf_tables.ko:\n")
	m.says("demo", "")
}

// kmsg removes the device.
func (m *machine) kmsg() {
	if err := os.Remove(filepath.Join(m.tree, "dev/kmsg")); err != nil {
		m.t.Fatal(err)
	}
}

func TestUnknownCommand(t *testing.T) {
	out, err := exec.Command("../prerequisites.sh", "play").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "use build, demo or test") {
		t.Errorf("%v: %s", err, out)
	}
}

// Each command reports what is missing before it begins.
func TestCommandsAskFirst(t *testing.T) {
	for what, first := range map[string]string{
		"demo": "hack/prerequisites.sh demo", "build": "hack/prerequisites.sh build", "bin/manager": "hack/prerequisites.sh build",
	} {
		cmd := exec.Command("make", "--no-print-directory", "-n", what)
		cmd.Dir = "../.."
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "PREREQUISITES_") && !strings.HasPrefix(v, "MFLAGS") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		out, err := cmd.CombinedOutput()
		line, _, _ := strings.Cut(string(out), "\n")
		if err != nil || !strings.HasSuffix(line, first) || strings.Count(string(out), "prerequisites.sh") != 1 {
			t.Errorf("make %s: %v\n%s", what, err, out)
		}
	}
	script, err := os.ReadFile("../test.sh")
	if err != nil {
		t.Fatal(err)
	}
	asks, builds := bytes.Index(script, []byte("hack/prerequisites.sh test")), bytes.Index(script, []byte(`"$make" --no-print-directory`))
	if asks < 0 || builds < asks {
		t.Error("make test builds before it asks")
	}
}
