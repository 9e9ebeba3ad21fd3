-- The health of a SandboxPool: whether its pods come up.
local hs = { status = "Progressing", message = "Skein has not checked it yet" }
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local troubles = { PodsFailing = true, ImageUnavailable = true, Unschedulable = true, QuotaExceeded = true, PodsRefused = true }
local conditions = {}
for _, c in ipairs(status.conditions or {}) do
  conditions[c.type] = c
end
local ready, stalled = conditions.Ready, conditions.Stalled
if ready ~= nil then
  hs.message = ready.message or ""
  if ready.status == "True" then
    hs.status = "Healthy"
  elseif troubles[ready.reason] or (stalled ~= nil and stalled.status == "True") then
    hs.status = "Degraded"
  end
end
return hs
