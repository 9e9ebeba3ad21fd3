// The module "@ai-sdk/$provider": its values only name a model. The agent decides which Model object answers
// (spec: handler.models), and that object has the credentials too.
function make(options) {
  for (const name of ['apiKey', 'baseURL', 'fetch']) {
    if (options?.[name] !== undefined) {
      throw new TypeError(`$create: ${name} is not taken here: the endpoint and its credentials belong to the Model object`);
    }
  }
  const model = (modelId) => {
    if (typeof modelId !== 'string' || modelId === '') throw new TypeError('$provider(…) takes the name of a model');
    return Object.freeze({ specificationVersion: 'skein', provider: '$provider', modelId });
  };
  return Object.assign(model, { languageModel: model, chat: model, responses: model, completion: model, messages: model });
}

export const $provider = make();
export const $create = make;
export default $provider;
