-- The health of a Subagent: that of the child Thread, until the child has ended.
local hs = { status = "Progressing", message = "Skein has not checked it yet" }
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local conditions = {}
for _, c in ipairs(status.conditions or {}) do
  conditions[c.type] = c
end
local ready, stalled, terminated = conditions.Ready, conditions.Stalled, conditions.Terminated
if terminated ~= nil and terminated.status == "True" then
  hs.status = "Healthy"
  hs.message = "The child has ended"
elseif ready ~= nil then
  hs.message = ready.message or ""
  if stalled ~= nil and stalled.status == "True" then
    hs.status = "Degraded" -- only an edit mends it
  elseif ready.status == "True" then
    hs.status = "Healthy"
  end
end
return hs
