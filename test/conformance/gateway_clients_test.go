package conformance

import (
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// inNode runs a program with the packages that hack/npm/NAME pins, and returns what it prints.
func inNode(ctx SpecContext, name, program string, args ...string) string {
	GinkgoHelper()
	run := exec.CommandContext(ctx, "node", append([]string{"--input-type=module", "-e", program}, args...)...)
	run.Dir = npmPackages(ctx, name)
	run.Stderr = GinkgoWriter
	out, err := run.Output()
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// Chat pages use these clients in the browser. Both send the whole conversation with each message.
var _ = Describe("Gateways and JavaScript", Label("IDS-03"), func() {
	for name, program := range map[string]string{"openai": javascriptChat, "ai-sdk": pageChat} {
		It("answer the client "+name+" of others, whole and in parts", func(ctx SpecContext) {
			counted := harness.Echo()
			counted.Usage = &skeinv1.ScriptUsage{InputTokens: 7, OutputTokens: 5}
			ns, _ := openDoor(ctx, []skeinv1.ScriptStep{counted})
			Expect(inNode(ctx, name, program, "http://"+door+"/"+ns+"/chat/v1")).To(MatchJSON(`{
				"models": ["agent"], "whole": "echo: hello", "streamed": "echo: again", "finish": "stop", "used": true,
				"wrong": {"status": 404, "code": "model_not_found", "param": "model"}
			}`))
			Expect(saidThrough(ctx, ns)).To(Equal([]string{"user: hello", "assistant: echo: hello", "user: again", "assistant: echo: again"}))
		}, SpecTimeout(5*patience))
	}
})

// javascriptChat is a program with OpenAI's client. It prints what it got.
const javascriptChat = `
import OpenAI from 'openai';
const baseURL = process.argv[1];
const client = new OpenAI({ baseURL, apiKey: 'none' });
const models = [];
for await (const m of client.models.list()) models.push(m.id);
const { data, response } = await client.chat.completions.create({ model: 'agent', messages: [{ role: 'user', content: 'hello' }] }).withResponse();
const again = new OpenAI({ baseURL, apiKey: 'none', defaultHeaders: { 'x-thread-id': response.headers.get('x-thread-id') } });
const messages = [{ role: 'user', content: 'hello' }, data.choices[0].message, { role: 'user', content: 'again' }];
const stream = await again.chat.completions.create({ model: 'agent', messages, stream: true, stream_options: { include_usage: true } });
let streamed = '', finish, used = false;
for await (const part of stream) {
  streamed += part.choices[0]?.delta?.content ?? '';
  finish = part.choices[0]?.finish_reason ?? finish;
  used ||= part.usage?.total_tokens > 0;
}
let wrong;
try { await client.chat.completions.create({ model: 'other', messages }); } catch (e) { wrong = { status: e.status, code: e.code, param: e.param }; }
console.log(JSON.stringify({ models, whole: data.choices[0].message.content, streamed, finish, used, wrong }));
`

// pageChat is the same with the AI SDK, on which chat pages are built. It cannot list models.
const pageChat = `
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
const baseURL = process.argv[1];
const first = createOpenAICompatible({ name: 'skein', baseURL });
const models = (await (await fetch(baseURL + '/models')).json()).data.map(m => m.id);
const whole = await generateText({ model: first('agent'), prompt: 'hello', maxRetries: 0 });
const headers = { 'x-thread-id': whole.response.headers['x-thread-id'] };
const again = createOpenAICompatible({ name: 'skein', baseURL, headers, includeUsage: true });
const messages = [{ role: 'user', content: 'hello' }, { role: 'assistant', content: whole.text }, { role: 'user', content: 'again' }];
const stream = streamText({ model: again('agent'), messages, maxRetries: 0 });
let streamed = '';
for await (const text of stream.textStream) streamed += text;
const finish = await stream.finishReason, used = (await stream.usage).totalTokens > 0;
let wrong;
try {
  await generateText({ model: first('other'), prompt: 'hello', maxRetries: 0 });
} catch (e) {
  const { code, param } = JSON.parse(e.responseBody).error;
  wrong = { status: e.statusCode, code, param };
}
console.log(JSON.stringify({ models, whole: whole.text, streamed, finish, used, wrong }));
`
