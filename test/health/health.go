// Package health judges objects as GitOps tools do: by the rules of kstatus, which Flux and kpt follow, and by the
// scripts that Argo CD runs.
package health

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The verdicts of kstatus that an object which is not being deleted can have.
const (
	InProgress = "InProgress"
	Failed     = "Failed"
	Current    = "Current"
)

// KStatus judges a custom resource by the rules of sigs.k8s.io/cli-utils/pkg/kstatus: first the observed generation,
// then the conditions Reconciling and Stalled, then Ready. An object without any of them is taken for current.
func KStatus(o *unstructured.Unstructured) (verdict, message string) {
	observed, found, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if found && observed != o.GetGeneration() {
		return InProgress, fmt.Sprintf("generation %d is not observed yet: %d is", o.GetGeneration(), observed)
	}
	list := conditions(o)
	for _, c := range list {
		switch {
		case c["type"] == "Reconciling" && c["status"] == "True":
			return InProgress, fmt.Sprint(c["message"])
		case c["type"] == "Stalled" && c["status"] == "True":
			return Failed, fmt.Sprint(c["message"])
		}
	}
	for _, c := range list {
		if c["type"] != "Ready" {
			continue
		}
		if c["status"] == "True" {
			return Current, fmt.Sprint(c["message"])
		}
		return InProgress, fmt.Sprint(c["message"])
	}
	return Current, "the resource is current"
}

func conditions(o *unstructured.Unstructured) (out []map[string]any) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// ArgoScripts reads the health checks of config/argocd below root, by the keys that Argo CD finds them by.
func ArgoScripts(root string) (map[string]string, error) {
	dir := filepath.Join(root, "config", "argocd")
	b, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var k struct {
		ConfigMapGenerator []struct{ Files []string }
	}
	if err := yaml.Unmarshal(b, &k); err != nil {
		return nil, err
	}
	scripts := map[string]string{}
	for _, g := range k.ConfigMapGenerator {
		for _, f := range g.Files {
			key, file, _ := strings.Cut(f, "=")
			script, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				return nil, err
			}
			scripts[key] = string(script)
		}
	}
	return scripts, nil
}

// ArgoKey is where Argo CD looks for the health check of an object's kind.
func ArgoKey(o *unstructured.Unstructured) string {
	gvk := o.GroupVersionKind()
	return "resource.customizations.health." + gvk.Group + "_" + gvk.Kind
}

// Argo judges an object by a script, with the libraries that Argo CD gives to one: the basic one and that of tables.
func Argo(script string, o *unstructured.Unstructured) (status, message string, err error) {
	vm := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer vm.Close()
	for _, l := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		if err := vm.CallByParam(lua.P{Fn: vm.NewFunction(l.open), Protect: true}, lua.LString(l.name)); err != nil {
			return "", "", err
		}
	}
	vm.SetGlobal("obj", value(vm, o.Object))
	if err := vm.DoString(script); err != nil {
		return "", "", err
	}
	answer, ok := vm.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the script gives a %s instead of a table", vm.Get(-1).Type())
	}
	return lua.LVAsString(answer.RawGetString("status")), lua.LVAsString(answer.RawGetString("message")), nil
}

// value is a JSON value as a script sees it.
func value(vm *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		t := vm.CreateTable(len(v), 0)
		for _, item := range v {
			t.Append(value(vm, item))
		}
		return t
	case map[string]any:
		t := vm.CreateTable(0, len(v))
		for key, item := range v {
			t.RawSetString(key, value(vm, item))
		}
		return t
	}
	return lua.LNil
}
