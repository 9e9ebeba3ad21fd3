import { defineTool } from '@standardagents/builder';
import { z } from 'zod';
import { between } from '../lib/dates';

export default defineTool({
  description: 'Says how long a delivery took.',
  args: z.object({ ordered: z.string(), delivered: z.string() }),
  execute: async (_state, { ordered, delivered }) => `The delivery took ${between(ordered, delivered)}.`,
});
