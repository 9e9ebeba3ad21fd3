-- The health of an Agent, Effect, Model, Prompt, ThreadEndpoint, ThreadGateway, ThreadQuota, Tool, Webhook or WebhookReceiver.
local hs = { status = "Progressing", message = "Skein has not checked it yet" }
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local conditions = {}
for _, c in ipairs(status.conditions or {}) do
  conditions[c.type] = c
end
local ready, stalled = conditions.Ready, conditions.Stalled
if ready ~= nil then
  hs.message = ready.message or ""
  if stalled ~= nil and stalled.status == "True" then
    hs.status = "Degraded" -- only an edit mends it
  elseif ready.status == "True" then
    hs.status = "Healthy"
  end
end
return hs
