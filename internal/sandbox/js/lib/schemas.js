// A function that takes zod and makes schemas of the kinds that most definitions use, for images of engines. zod gives a class its
// methods when the first schema of the class is made, some forty for each, and makes its defaults, such as the messages of errors, with
// the first schema of all. This is the same for each definition. A class takes about 20 KB of the image, so rare ones are left out.
(function (z) {
  const schema = z.object({
    text: z.string().min(1).max(2).optional().describe(''),
    number: z.number().int().min(0).max(1),
    flag: z.boolean().default(true),
    choice: z.enum(['a']).nullable(),
    list: z.array(z.string()),
    constant: z.literal('a').optional(),
    either: z.union([z.string(), z.null()]),
    record: z.record(z.string(), z.unknown()).optional(),
    anything: z.any(),
  });
  return schema.safeParseAsync({ number: 1, list: [], choice: null, either: null });
})
