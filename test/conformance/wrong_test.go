package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// smallest is a spec of each kind that is accepted.
var smallest = map[string]string{
	"Agent":           `{sideA: {promptRef: {name: prompt}}}`,
	"Prompt":          `{text: hello, modelRef: {name: model}}`,
	"Model":           `{provider: scripted, script: {steps: [{content: hello}]}}`,
	"Tool":            `{description: x, code: {inline: "export default () => 1"}}`,
	"Effect":          `{code: {inline: "export default () => 1"}}`,
	"ThreadEndpoint":  `{path: /x, code: {inline: "export default () => 1"}}`,
	"ThreadGateway":   `{agentRef: {name: agent}, signingKeys: [{name: keys, key: current}]}`,
	"Webhook":         `{url: "https://a.example/x", events: [run.ended], signingKeys: [{name: keys, key: current}]}`,
	"WebhookReceiver": `{form: GitHub, agentRef: {name: agent}, signingKeys: [{name: keys, key: current}]}`,
	"Thread":          `{agentRef: {name: agent}}`,
	"Subagent":        `{parentRef: {name: thread}, agentRef: {name: agent}, name: x}`,
	"ScheduledEffect": `{threadRef: {name: thread}, effect: effect, after: 1h}`,
	"SandboxPool":     `{}`,
	"ThreadQuota":     `{hard: {threads: 1}}`,
}

// refused are specs that people write, and what the refusal must say.
var refused = []struct{ kind, spec, says string }{
	{"Thread", `{}`, "spec.agentRef: Required value"},
	{"Thread", `{agentRef: analyst}`, "spec.agentRef"},
	{"Thread", `{agentRef: {name: ""}}`, "spec.agentRef.name"},
	{"Thread", `{agentRef: {name: a}, idleExpiry: 30d}`, "use a duration such as 10s, 5m or 1h30m; hours are the largest unit, so 30 days are 720h"},
	{"Thread", `{agentRef: {name: a}, idleExpiry: 300}`, "spec.idleExpiry"},
	{"Thread", `{agentRef: {name: a}, idleExpiry: -1h}`, "use a duration"},
	{"Thread", `{agentRef: {name: a}, idleExpiry: 1ms}`, "0s"},
	{"Thread", `{agentRef: {name: a}, deletionPolicy: Keep}`, `"Delete", "Retain"`},
	{"Thread", `{agentRef: {name: a}, runPolicy: wait}`, "spec.runPolicy"},
	{"Thread", `{agentRef: {name: a}, threadID: my-thread}`, "spec.threadID"},
	{"Thread", `{agentRef: {name: a}, fileQuota: {bytes: 500 MB}}`, "use a quantity such as 500Mi"},
	{"Thread", `{agentRef: {name: a}, fileQuota: {bytes: -1}}`, "whole number of bytes"},
	{"Thread", `{agentRef: {name: a}, fileQuota: {bytes: "1e-999999999"}}`, "use a quantity such as 500Mi"},
	{"Thread", `{agentRef: {name: a}, limits: {maxCost: free}}`, "use a quantity"},
	{"Thread", `{agentRef: {name: a}, limits: {maxCost: "0"}}`, "amount above 0"},
	{"Thread", `{agentRef: {name: a}, limits: {maxSteps: 0}}`, "spec.limits.maxSteps"},
	{"Thread", `{agentRef: {name: a}, limits: {maxSteps: 3000000000}}`, "spec.limits.maxSteps"},
	{"Thread", `{agentRef: {name: a}, limits: {maxTokens: 1.5}}`, "spec.limits.maxTokens"},
	{"Thread", `{agentRef: {name: a}, limits: {maxDuration: forever}}`, "use a duration"},
	{"Thread", `{agentRef: {name: a}, arguments: [1]}`, "spec.arguments"},
	{"Thread", `{agentRef: {name: a}, env: [{name: 1X, value: "v"}]}`, "spec.env[0].name"},
	{"Thread", `{agentRef: {name: a}, env: [{name: A, value: v}, {name: A, value: w}]}`, "spec.env[1]"},
	{"Agent", `{}`, "spec.sideA: Required value"},
	{"Agent", `{sideA: {}}`, "promptRef"},
	{"Agent", `{sideA: {promptRef: {name: p}, handler: {code: {inline: x}}}}`, "handler"},
	{"Agent", `{type: solo, sideA: {promptRef: {name: p}}}`, "spec.type"},
	{"Agent", `{type: dual_ai, sideA: {promptRef: {name: p}}}`, "sideB"},
	{"Agent", `{sideA: {promptRef: {name: p}}, maxSessionTurns: -1}`, "spec.maxSessionTurns"},
	{"Agent", `{sideA: {promptRef: {name: p}}, threadIdleExpiry: 1 week}`, "use a duration"},
	{"Agent", `{sideA: {promptRef: {name: p}}, hooks: [{hook: on_message, code: {inline: x}}]}`, "spec.hooks[0].hook"},
	{"Agent", `{sideA: {promptRef: {name: p}}, hooks: [{hook: filter_messages, timeout: 1h, code: {inline: x}}]}`, "from 1ms to 10m"},
	{"Agent", `{sideA: {promptRef: {name: p}}, hooks: [{hook: filter_messages, timeout: soon, code: {inline: x}}]}`, "use a duration"},
	{"Agent", `{sideA: {handler: {code: {inline: x}, timeout: 2h}}}`, "from 100ms to 1h"},
	{"Prompt", `{}`, "spec.modelRef: Required value"},
	{"Prompt", `{modelRef: {name: m}}`, "text"},
	{"Prompt", `{modelRef: {name: m}, text: a, parts: [{text: b}]}`, "parts"},
	{"Prompt", `{modelRef: {name: m}, text: a, tools: [{builtin: browser}]}`, "spec.tools[0].builtin"},
	{"Prompt", `{modelRef: {name: m}, text: a, tools: [{}]}`, "spec.tools[0]"},
	{"Prompt", `{modelRef: {name: m}, text: a, tools: [{name: t, approvalTimeout: 5 minutes}]}`, "use a duration"},
	{"Prompt", `{modelRef: {name: m}, text: a, tools: [{name: t, ttlAfterFinished: 1h}]}`, "are for agent"},
	{"Prompt", `{modelRef: {name: m}, text: a, tools: [{prompt: p, retain: Keep}]}`, "are for agent"},
	{"Prompt", `{modelRef: {name: m}, text: a, tools: [{agent: x, ttlAfterFinished: 90000h}]}`, "from 0s to 87600h"},
	{"Prompt", `{modelRef: {name: m}, text: a, tools: read_file}`, "spec.tools"},
	{"Prompt", `{modelRef: m, text: a}`, "spec.modelRef"},
	{"Prompt", `{modelRef: {name: m}, text: a, requiredSchema: object}`, "spec.requiredSchema"},
	{"Prompt", `{modelRef: {name: m}, text: a, recentImageThreshold: -1}`, "spec.recentImageThreshold"},
	{"Model", `{}`, "spec.provider: Required value"},
	{"Model", `{provider: gpt, model: x}`, "spec.provider"},
	{"Model", `{provider: openai}`, "model"},
	{"Model", `{provider: openai, model: x, endpoint: api.example.com}`, "spec.endpoint"},
	{"Model", `{provider: scripted}`, "script"},
	{"Model", `{provider: openai, model: x, timeout: 2 minutes}`, "use a duration"},
	{"Model", `{provider: openai, model: x, idleTimeout: 0s}`, "from 1ms to 24h"},
	{"Model", `{provider: openai, model: x, timeout: 0s}`, "from 1ms to 24h such as 120s"},
	{"Model", `{provider: openai, model: x, timeout: 9999h}`, "from 1ms to 24h such as 120s"},
	{"Model", `{provider: openai, model: x, maxRetries: many}`, "spec.maxRetries"},
	{"Model", `{provider: openai, model: x, options: {temperature: hot}}`, "spec.options.temperature"},
	{"Model", `{provider: openai, model: x, pricing: {input: cheap}}`, "spec.pricing"},
	{"Model", `{provider: scripted, script: {steps: [{content: x, latency: slow}]}}`, "use a duration"},
	{"Tool", `{}`, "exactly one of code, http and mcp"},
	{"Tool", `{description: x}`, "exactly one of code, http and mcp"},
	{"Tool", `{description: x, code: {inline: x}, http: {url: "https://example.com"}}`, "exactly one of code, http and mcp"},
	{"Tool", `{code: {inline: x}}`, "description"},
	{"Tool", `{description: x, code: {}}`, "inline"},
	{"Tool", `{description: x, code: {inline: x, language: python}}`, "spec.code.language"},
	{"Tool", `{description: x, code: {inline: x}, timeout: 10 seconds}`, "use a duration such as 10s, 5m or 1h30m"},
	{"Tool", `{description: x, code: {inline: x}, timeout: 1d}`, "use a duration such as 10s, 5m or 1h30m"},
	{"Tool", `{description: x, code: {inline: x}, timeout: 30}`, "spec.timeout"},
	{"Tool", `{description: x, code: {inline: x}, timeout: 0s}`, "from 1ms to 24h such as 60s"},
	{"Tool", `{description: x, code: {inline: x}, parameters: [a]}`, "spec.parameters"},
	{"Tool", `{description: x, code: {inline: x}, approvalTimeout: 1ms}`, "from 1s to 87600h"},
	{"Tool", `{description: x, http: {url: "ftp://example.com"}}`, "spec.http"},
	{"Tool", `{description: x, http: {}}`, "spec.http"},
	{"Tool", `{mcp: {url: nowhere}}`, "spec.mcp"},
	{"Effect", `{}`, "spec.code: Required value"},
	{"Effect", `{code: {inline: x}, timeout: a while}`, "use a duration"},
	{"Effect", `{code: {inline: x}, timeout: "0"}`, "from 1ms to 24h such as 60s"},
	{"ThreadEndpoint", `{path: /x, timeout: 0s, code: {inline: x}}`, "from 1ms to 24h such as 30s"},
	{"ThreadEndpoint", `{}`, "spec.path: Required value"},
	{"ThreadEndpoint", `{path: x, code: {inline: x}}`, "spec.path"},
	{"ThreadEndpoint", `{path: "/[*]/x", code: {inline: x}}`, "spec.path"},
	{"ThreadEndpoint", `{path: /x, methods: [FETCH], code: {inline: x}}`, "spec.methods[0]"},
	{"ThreadEndpoint", `{path: /x, timeout: PT5M, code: {inline: x}}`, "use a duration"},
	{"ThreadGateway", `{agentRef: {name: a}}`, "spec.signingKeys: Required value"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: []}`, "spec.signingKeys"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], cookieName: "a;b"}`, "such as atid"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], allowedOrigins: ["*"]}`, "without *"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], allowedOrigins: ["https://a.example/x"]}`, "https://chat.example.com"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], answerTimeout: 2 minutes}`, "use a duration"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], answerTimeout: 2h}`, "from 1s to 1h"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], user: {header: Cookie, hashKey: {name: s, key: k}}}`, "X-User-Id"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], limits: {perThread: 0}}`, "spec.limits.perThread"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], limits: {chatBytes: 1}}`, "spec.limits.chatBytes"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], apiKeys: []}`, "spec.apiKeys"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], idProvider: {}}`, "write either http or code: one of them makes the ids"},
	{"ThreadGateway", `{agentRef: {name: a}, signingKeys: [{name: s, key: k}], idProvider: {http: {url: "https://u:p@a.example"}}}`, "without a user and a password"},
	{"Webhook", `{url: ftp://a.example/x, events: [run.ended], signingKeys: [{name: s, key: k}]}`, "such as https://ci.example.com/skein"},
	{"Webhook", `{url: "https://u:p@a.example/x", events: [run.ended], signingKeys: [{name: s, key: k}]}`, "without a user and a password"},
	{"Webhook", `{url: "https://a.example/x", events: [], signingKeys: [{name: s, key: k}]}`, "spec.events"},
	{"Webhook", `{url: "https://a.example/x", events: [run.begun], signingKeys: [{name: s, key: k}]}`, "spec.events[0]"},
	{"Webhook", `{url: "https://a.example/x", events: [run.ended]}`, "spec.signingKeys: Required value"},
	{"Webhook", `{url: "https://a.example/x", events: [run.ended], signingKeys: [{name: s, key: k}], maxAttempts: 0}`, "spec.maxAttempts"},
	{"WebhookReceiver", `{form: GitLab, agentRef: {name: a}, signingKeys: [{name: s, key: k}]}`, "spec.form"},
	{"WebhookReceiver", `{form: GitHub, signingKeys: [{name: s, key: k}]}`, "write either threadRef"},
	{"WebhookReceiver", `{form: GitHub, agentRef: {name: a}, threadRef: {name: t}, signingKeys: [{name: s, key: k}]}`, "write either threadRef"},
	{"WebhookReceiver", `{form: GitHub, agentRef: {name: a}, signingKeys: [{name: s, key: k}], maxBytes: 1000000}`, "spec.maxBytes"},
	{"ThreadQuota", `{}`, "spec.hard: Required value"},
	{"ThreadQuota", `{hard: {}}`, "spec.hard"},
	{"ThreadQuota", `{hard: {threads: -1}}`, "spec.hard.threads"},
	{"ThreadQuota", `{hard: {bytes: plenty}}`, "spec.hard.bytes"},
	{"ThreadQuota", `{hard: {bytes: 100m}}`, "give a whole number of bytes such as 10Gi"},
	{"ThreadQuota", `{hard: {costPerDay: "-1"}}`, "give an amount of US dollars"},
	{"ThreadQuota", `{hard: {pods: 3}}`, `unknown field "spec.hard.pods"`},
	{"SandboxPool", `{warm: -1}`, "spec.warm"},
	{"SandboxPool", `{warm: two}`, "spec.warm"},
	{"SandboxPool", `{warm: 5, max: 2}`, "warm must not be above max"},
	{"SandboxPool", `{max: 3000000000}`, "spec.max"},
	{"SandboxPool", `{engine: deno}`, "spec.engine"},
	{"SandboxPool", `{idleTimeout: "300"}`, "use a duration"},
	{"SandboxPool", `{maxWallTime: 1 minute}`, "use a duration"},
	{"SandboxPool", `{maxMemory: lots}`, "use a quantity such as 500Mi"},
	{"SandboxPool", `{maxMemory: -64Mi}`, "from 1Mi to 1Ti such as 64Mi"},
	{"SandboxPool", `{maxMemory: 0}`, "from 1Mi to 1Ti such as 64Mi"},
	{"SandboxPool", `{maxMemory: 64}`, "a number without a unit counts bytes"},
	{"SandboxPool", `{maxMemory: 64m}`, "from 1Mi to 1Ti such as 64Mi"},
	{"SandboxPool", `{maxMemory: 8E}`, "from 1Mi to 1Ti such as 64Mi"},
	{"SandboxPool", `{idleTimeout: 0s}`, "from 1s to 87600h such as 5m"},
	{"SandboxPool", `{maxWallTime: 0s}`, "from 100ms to 24h such as 60s"},
	{"SandboxPool", `{maxWallTime: 9000h}`, "from 100ms to 24h such as 60s"},
	{"SandboxPool", `{maxConcurrency: 0}`, "spec.maxConcurrency"},
	{"SandboxPool", `{resources: {limits: {memory: -1Gi}}}`, "spec.resources.limits[memory]: Invalid value: \"-1Gi\": use a quantity such as 500m or 1Gi"},
	{"SandboxPool", `{resources: {requests: {cpu: "-1"}}}`, "use a quantity such as 500m or 1Gi"},
	{"SandboxPool", `{resources: {limits: {memory: 512}}}`, "of 32Mi or more, such as 512Mi"},
	{"SandboxPool", `{resources: {limits: {memory: "0"}}}`, "of 32Mi or more, such as 512Mi"},
	{"SandboxPool", `{resources: {limits: {cpu: "0"}}}`, "above 0 such as 500m"},
	{"SandboxPool", `{tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 1e99}]}`, "spec.tolerations[0].tolerationSeconds"},
	{"SandboxPool", `{topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}`, "spec.topologySpreadConstraints[0].maxSkew"},
	{"SandboxPool", `{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: -1, podAffinityTerm: {topologyKey: a}}]}}}`, "weight"},
	{"SandboxPool", `{imagePullPolicy: Sometimes}`, "spec.imagePullPolicy"},
	{"SandboxPool", `{resources: {limits: {memory: lots}}}`, "use a quantity such as 500m or 1Gi"},
	{"SandboxPool", `{resources: {limits: {memory: "1e-999999999"}}}`, "use a quantity such as 500m or 1Gi"},
	{"SandboxPool", `{resources: {requests: {memory: 500 MB}}}`, "use a quantity such as 500m or 1Gi"},
	{"SandboxPool", `{resources: {limits: {a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1}}}`, "must have at most 6 items"},
	{"SandboxPool", `{podMetadata: {labels: {skein.dev/x: "on"}}}`, "Skein's own"},
	{"SandboxPool", `{runtimeContext: x}`, "spec.runtimeContext"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e}`, "exactly one of at"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: 1h, at: "2027-01-31T09:00:00Z"}`, "exactly one of at"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, at: tomorrow}`, "use a time such as 2027-01-31T09:00:00Z"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, at: "2027-02-30T09:00:00Z"}`, "use a time such as 2027-01-31T09:00:00Z"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, at: "2027-02-29T09:00:00Z"}`, "no 29th day"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, at: 1767225600}`, "spec.at"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: "*/5 * * * *"}`, "use a duration"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: -5m}`, "use a duration"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: 8761h}`, "give a delay from 0s, which is now, to 8760h, which is a year, or set at"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: "a b", after: 1h}`, "spec.effect"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["@daily"], startingDeadlineSeconds: 10000000000}`, "spec.startingDeadlineSeconds"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: 1h, ttlSecondsAfterFinished: -1}`, "spec.ttlSecondsAfterFinished"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, at: "2027-01-31T09:00:00Z", schedules: ["@daily"]}`, "exactly one of at"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: []}`, "spec.schedules"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["0 0 9 * * MON"]}`, "write a cron expression with five fields"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["tomorrow"]}`, "write a cron expression with five fields"},
	{"ScheduledEffect", `{threadRef: {name: t}, schedules: ["@daily"]}`, "exactly one of effect, callTool, queueTool, message and threadTemplate"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, message: {content: hi}, schedules: ["@daily"]}`, "exactly one of effect, callTool, queueTool, message and threadTemplate"},
	{"ScheduledEffect", `{message: {content: hi}, schedules: ["@daily"]}`, "message and queueTool need a thread"},
	{"ScheduledEffect", `{queueTool: {name: x}, after: 1h}`, "message and queueTool need a thread"},
	{"ScheduledEffect", `{threadRef: {name: t}, message: {content: ""}, schedules: ["@daily"]}`, "spec.message.content"},
	{"ScheduledEffect", `{threadRef: {name: t}, threadSelector: {matchLabels: {a: b}}, effect: e, after: 1h}`, "set threadRef or threadSelector, not both"},
	{"ScheduledEffect", `{threadRef: {name: t}, callTool: {name: x}, after: 1h}`, "callTool and threadTemplate have no thread to work on"},
	{"ScheduledEffect", `{threadTemplate: {spec: {agentRef: {name: a}}}, schedules: ["@daily"]}`, "set message: a Thread without one does not run"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, sandboxPool: {name: p}, after: 1h}`, "sandboxPool and env are for an effect without a thread"},
	{"ScheduledEffect", `{effect: e, after: 1h, env: [{name: A}]}`, "a variable needs value or valueFrom"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: 1h, timeZone: Europe/Berlin}`, "are for schedules"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: 1h, pauseAfterFailures: 3}`, "are for schedules"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["@daily"], exclusions: [{}]}`, "set schedule, such as"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["@daily"], jitter: 48h}`, "give a duration up to 24h"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["@daily"], catchUp: {policy: Some}}`, `"None", "Last", "All"`},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["@daily"], concurrencyPolicy: Wait}`, "spec.concurrencyPolicy"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["@daily"], dailyLimit: {cost: free}}`, "write an amount such as"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, schedules: ["@daily"], dailyLimit: {cost: "1"}}`, "dailyLimit.cost counts the threads of threadTemplate: set dailyLimit.firings for everything else"},
	{"ScheduledEffect", `{threadRef: {name: t}, message: {content: hi}, schedules: ["@daily"], dailyLimit: {cost: "1"}}`, "dailyLimit.cost counts the threads of threadTemplate: set dailyLimit.firings for everything else"},
	{"ScheduledEffect", `{callTool: {name: x}, schedules: ["@daily"], dailyLimit: {cost: "1"}}`, "dailyLimit.cost counts the threads of threadTemplate: set dailyLimit.firings for everything else"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: 1h, retry: {statuses: [503]}}`, "retry.statuses are statuses of HTTP answers: leave it out, or set callTool"},
	{"ScheduledEffect", `{threadTemplate: {spec: {agentRef: {name: a}, message: hi}}, schedules: ["@daily"], retry: {attempts: 2}}`, "retry is for attempts, and the Thread of a threadTemplate is the only one: leave retry out"},
	{"ScheduledEffect", `{callTool: {name: x}, after: 1h, retry: {statuses: [200]}}`, "should be greater than or equal to 300"},
	{"ScheduledEffect", `{threadRef: {name: t}, effect: e, after: 1h, retry: {attempts: 0}}`, "spec.retry.attempts"},
	{"Subagent", `{}`, "Required value"},
	{"Subagent", `{parentRef: {name: t}, agentRef: {name: a}, name: x, parentCommunication: shout}`, "spec.parentCommunication"},
}

// explained are specs that only the manager can judge, and what their condition must say.
var explained = []struct{ kind, name, spec, reason, says string }{
	{"Thread", "no-agent", `{agentRef: {name: nobody}}`, skeinv1.ReasonReferenceNotFound, `Agent "nobody" does not exist`},
	{"Thread", "not-kept", `{agentRef: {name: nobody}, threadID: 01234567-89ab-cdef-0123-456789abcdef}`, skeinv1.ReasonThreadNotRetained, "no retained data"},
	{"Agent", "no-prompt", `{sideA: {promptRef: {name: nothing}}}`, skeinv1.ReasonReferenceNotFound, `Prompt "nothing" does not exist`},
	{"Prompt", "no-model", `{text: x, modelRef: {name: nothing}}`, skeinv1.ReasonReferenceNotFound, `Model "nothing" does not exist`},
	{"Prompt", "braces", `{text: "{{ argument.x }}", modelRef: {name: nothing}}`, skeinv1.ReasonInvalidPlaceholder, "{{ arguments.NAME }}"},
	{"Prompt", "circle", `{parts: [{include: circle}], modelRef: {name: nothing}}`, skeinv1.ReasonIncludeCycle, "circle → circle"},
	{"Model", "no-secret", `{provider: openai, model: x, credentials: {secretKeyRef: {name: s, key: k}}}`, skeinv1.ReasonReferenceNotFound, `Secret "s"`},
	{"Model", "bad-script", `{provider: scripted, script: {steps: [{content: x, when: {matches: "("}}]}}`, skeinv1.ReasonInvalidScript, "("},
	{"Tool", "broken", `{description: x, code: {inline: "export default ("}}`, skeinv1.ReasonCompileFailed, "line 1"},
	{"Tool", "schema", `{description: x, code: {inline: "export default () => 1"}, parameters: {type: objekt}}`, skeinv1.ReasonInvalidSchema, "spec.parameters"},
	{"Tool", "no-map", `{description: x, code: {configMapKeyRef: {name: c, key: k}}}`, skeinv1.ReasonReferenceNotFound, `ConfigMap "c"`},
	{"Effect", "broken", `{code: {inline: "export default {a: = 1}"}}`, skeinv1.ReasonCompileFailed, "line 1"},
	{"ScheduledEffect", "no-thread", `{threadRef: {name: nobody}, effect: e, after: 1h}`, skeinv1.ReasonReferenceNotFound, `Thread "nobody" does not exist`},
}

func wrongObject(ns, kind, name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifestOf(ns, kind, name, spec)), &u.Object)).To(Succeed(), spec)
	return u
}

// refusal is what the API server says to an object, without keeping it.
func refusal(ctx context.Context, o *unstructured.Unstructured) error {
	return cluster.Client.Create(ctx, o, client.DryRunAll, client.FieldValidation("Strict"))
}

var _ = Describe("A wrong manifest", Label("K8S-02", "K8S-08"), func() {
	It("is refused with a text that says what to do", func(ctx SpecContext) {
		ns := namespace(ctx)
		for kind, spec := range smallest {
			Expect(refusal(ctx, wrongObject(ns, kind, "x", spec))).To(Succeed(), kind)
		}
		var problems []string
		for _, c := range refused {
			err := refusal(ctx, wrongObject(ns, c.kind, "x", c.spec))
			switch {
			case err == nil:
				problems = append(problems, fmt.Sprintf("%s %s: accepted", c.kind, c.spec))
			case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err), !strings.Contains(err.Error(), c.says), strings.Contains(err.Error(), "should match"):
				problems = append(problems, fmt.Sprintf("%s %s: want %q, got: %v", c.kind, c.spec, c.says, err))
			}
		}
		Expect(problems).To(BeEmpty(), strings.Join(problems, "\n"))
	}, SpecTimeout(2*patience))

	It("is refused for each field of another type, which the text names", func(ctx SpecContext) {
		ns := namespace(ctx)
		files, err := filepath.Glob(filepath.Join(harness.Root(), "config", "crd", "bases", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		tried := 0
		for _, file := range files {
			data, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			var crd apiextensionsv1.CustomResourceDefinition
			Expect(yaml.Unmarshal(data, &crd)).To(Succeed())
			kind := crd.Spec.Names.Kind
			Expect(smallest).To(HaveKey(kind))
			Expect(undecodableKinds()).To(ContainElement(kind))
			for name, property := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties {
				o := wrongObject(ns, kind, "x", smallest[kind])
				var wrong any = map[string]any{"no": "such thing"}
				if property.Type == "object" {
					wrong = int64(7)
				}
				Expect(unstructured.SetNestedField(o.Object, wrong, "spec", name)).To(Succeed())
				Expect(refusal(ctx, o)).To(MatchError(ContainSubstring("spec.%s", name)), "%s spec.%s: %v", kind, name, wrong)
				tried++
			}
			o := wrongObject(ns, kind, "x", smallest[kind])
			Expect(unstructured.SetNestedField(o.Object, "x", "spec", "noSuchField")).To(Succeed())
			Expect(refusal(ctx, o)).To(MatchError(ContainSubstring(`unknown field "spec.noSuchField"`)), kind)
		}
		Expect(tried).To(BeNumerically(">", 80))
	}, SpecTimeout(2*patience))

	It("is explained in a condition where only the manager can judge it", func(ctx SpecContext) {
		ns := namespace(ctx)
		for _, c := range explained {
			Expect(cluster.Client.Create(ctx, wrongObject(ns, c.kind, c.name, c.spec))).To(Succeed(), "%s %s", c.kind, c.name)
		}
		for _, c := range explained {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(skeinv1.GroupVersion.WithKind(c.kind))
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: c.name}, u)).To(Succeed())
				list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
				g.Expect(list).To(ContainElement(And(HaveKeyWithValue("type", "Ready"), HaveKeyWithValue("status", "False"), HaveKeyWithValue("reason", c.reason),
					HaveKeyWithValue("message", ContainSubstring(c.says)))))
			}).Should(Succeed(), "%s %s", c.kind, c.name)
		}
	}, SpecTimeout(2*patience))
})
