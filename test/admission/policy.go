// Package admission evaluates the ValidatingAdmissionPolicies of config/admission as the API server does, for its tests.
package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	k8sadmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// policies reads the policies below a folder, by name.
func policies(folder string) (map[string]*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	out := map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			var p admissionregistrationv1.ValidatingAdmissionPolicy
			if err := docs.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			if p.Kind == "ValidatingAdmissionPolicy" {
				out[p.Name] = &p
			}
		}
	}
	return out, nil
}

// compile compiles a policy like the API server.
func compile(p *admissionregistrationv1.ValidatingAdmissionPolicy) (validating.Validator, error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	with, without := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, plugincel.OptionalVariableDeclarations{}
	var variables []plugincel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, with, environment.StoredExpressions)
	var conditions, validations, messages []plugincel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, with, environment.StoredExpressions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	return validating.NewValidator(
		compiler.CompileCondition(validations, with, environment.StoredExpressions), matcher,
		compiler.CompileCondition(nil, with, environment.StoredExpressions),
		compiler.CompileCondition(messages, without, environment.StoredExpressions), p.Spec.FailurePolicy, nil), nil
}

// rights are what a user may do: "get secrets/NAME" or "get secrets", "create threads/effects NAME" and so on.
type rights struct {
	user   string
	may    []string
	checks []string
}

// Authorize answers from the list, and records what was asked.
func (r *rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	what := a.GetVerb() + " " + a.GetResource()
	if a.GetSubresource() != "" {
		what += "/" + a.GetSubresource()
	}
	r.checks = append(r.checks, strings.TrimSpace(what+" "+a.GetName()))
	for _, m := range r.may {
		if m == what || m == what+" "+a.GetName() {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ask returns the refusals of a policy for a request of a user, with the budget that the API server gives.
func ask(ctx context.Context, v validating.Validator, r *rights, resource string, object, old *unstructured.Unstructured) ([]string, error) {
	op, opts := k8sadmission.Create, runtime.Object(&metav1.CreateOptions{})
	var before runtime.Object
	if old != nil {
		op, opts, before = k8sadmission.Update, &metav1.UpdateOptions{}, old
	}
	kind, gvr := object.GroupVersionKind(), schema.GroupVersionResource{Group: "skein.dev", Version: "v1alpha1", Resource: resource}
	attrs := k8sadmission.NewAttributesRecord(object, before, kind, "team", object.GetName(), gvr, "", op, opts, false, &user.DefaultInfo{Name: r.user})
	versioned := &k8sadmission.VersionedAttributes{Attributes: attrs, VersionedKind: kind, VersionedObject: k8sadmission.NewLazyObject(object)}
	if old != nil {
		versioned.VersionedOldObject = k8sadmission.NewLazyObject(old)
	}
	result := v.Validate(ctx, gvr, versioned, nil, nil, celconfig.RuntimeCELCostBudget, r)
	var refused []string
	for _, d := range result.Decisions {
		if d.Evaluation == validating.EvalError {
			return nil, errors.New(d.Message)
		}
		if d.Action == validating.ActionDeny {
			refused = append(refused, d.Message)
		}
	}
	return refused, nil
}
