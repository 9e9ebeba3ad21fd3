// Package v1alpha1 holds the custom resources of Skein, group skein.dev, version v1alpha1.
// +kubebuilder:object:generate=true
// +groupName=skein.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "skein.dev", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers every kind of this package with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Agent{}, &AgentList{},
		&Prompt{}, &PromptList{},
		&Model{}, &ModelList{},
		&Tool{}, &ToolList{},
		&Effect{}, &EffectList{},
		&ThreadEndpoint{}, &ThreadEndpointList{},
		&ThreadGateway{}, &ThreadGatewayList{},
		&ThreadQuota{}, &ThreadQuotaList{},
		&Webhook{}, &WebhookList{},
		&WebhookReceiver{}, &WebhookReceiverList{},
		&Thread{}, &ThreadList{},
		&Subagent{}, &SubagentList{},
		&ScheduledEffect{}, &ScheduledEffectList{},
		&SandboxPool{}, &SandboxPoolList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
