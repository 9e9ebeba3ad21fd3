-- The health of a ScheduledEffect. One that waits for its time is healthy.
local hs = { status = "Progressing", message = "Skein has not checked it yet" }
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local conditions = {}
for _, c in ipairs(status.conditions or {}) do
  conditions[c.type] = c
end
local ready, stalled, complete = conditions.Ready, conditions.Stalled, conditions.Complete
if stalled ~= nil and stalled.status == "True" then
  hs.status = "Degraded" -- it failed for good, or only an edit mends it
  hs.message = stalled.message or ""
  if complete ~= nil and complete.status == "True" and (complete.message or "") ~= "" then
    hs.message = complete.message
  end
elseif complete ~= nil and complete.status == "True" then
  hs.status = "Healthy"
  hs.message = complete.reason
elseif ready ~= nil then
  hs.message = ready.message or ""
  if ready.status == "True" then
    hs.status = "Healthy"
  end
end
return hs
