-- The health of a Thread: whether its agent can serve it, and whether it waits for a person.
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
local executing, terminated = conditions.Executing, conditions.Terminated
if terminated ~= nil and terminated.status == "True" then
  hs.status = "Healthy"
  hs.message = "The conversation has ended"
elseif stalled ~= nil and stalled.status == "True" then
  hs.status = "Degraded" -- only an edit mends it
  hs.message = stalled.message or ""
elseif ready ~= nil and ready.status ~= "True" then
  hs.message = ready.message or ""
elseif ready ~= nil then
  hs.status = "Healthy"
  hs.message = ""
  if executing ~= nil and executing.status == "True" and (executing.reason == "WaitingForApproval" or executing.reason == "EnvMissing") then
    hs.status = "Suspended"
    hs.message = executing.message or ""
  elseif status.phase == "Parked" then
    hs.status = "Suspended"
    hs.message = "Messages wait for the next user message or a continue"
  end
end
return hs
