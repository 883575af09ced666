/** Models of the server: list, add, test, choose the default. For administrators; keys are sent once and never shown again. */

import { type FormEvent, useState } from "react";
import { nameOf } from "../api/advice";
import { adviceOf } from "../api/client";
import type { ManagedModel, ManagedModels, Settings } from "../api/types";
import { chooseDefaultModel, deleteModel, listManagedModels, putModel, testModel } from "../api/verbs";
import { ModelHelp } from "../chat/offline";
import { AsyncContent } from "../shell/async-content";
import { Icon } from "../shell/icons";
import { type Resource, useResource } from "../state/resource";
import { canManage, loadSession } from "../state/session";
import { showError, showMessage } from "../state/toasts";

export function Models({ settings }: { settings: Settings }) {
  return (
    <section id="models" aria-labelledby="models-title">
      <h2 id="models-title">Models</h2>
      {canManage(settings) ? <Managed /> : <ReadOnly settings={settings} />}
    </section>
  );
}

function ReadOnly({ settings }: { settings: Settings }) {
  return (
    <>
      <p className="hint">{settings.caller.rights.includes("admin") ? "This server's models are set in its configuration." : "Administrators choose the models of this server."} Default: {nameOf(settings.models.default)}.</p>
      {settings.models.default === "offline" && <ModelHelp />}
    </>
  );
}

function Managed() {
  const resource = useResource(() => listManagedModels(), []);
  return <AsyncContent resource={resource} what="the models">{(models) => <ModelList models={models} resource={resource} />}</AsyncContent>;
}

function ModelList({ models, resource }: { models: ManagedModels; resource: Resource<ManagedModels> }) {
  const [isAdding, setAdding] = useState(models.items.every((one) => one.name === "offline"));
  const changed = () => {
    resource.again();
    void loadSession(); // the picker of the composer
  };
  return (
    <div className="cards-and-form">
      <ul className="cards" aria-label="Models">
        {models.items.map((one) => <li key={one.name}><ModelCard model={one} onChange={changed} /></li>)}
      </ul>
      {isAdding ? (
        <ModelForm models={models} onSaved={changed} onDone={() => setAdding(false)} />
      ) : (
        <div className="row-of-buttons"><button type="button" className="button is-main" onClick={() => setAdding(true)}><Icon name="plus" size={16} /> Add a model</button></div>
      )}
    </div>
  );
}

function ModelCard({ model, onChange }: { model: ManagedModel; onChange: () => void }) {
  const [state, setState] = useState<{ isBusy: boolean; text: string; isBad: boolean }>({ isBusy: false, text: "", isBad: false });
  const run = async (work: () => Promise<unknown>, done: string) => {
    setState({ isBusy: true, text: "", isBad: false });
    try {
      await work();
      showMessage(done);
      onChange();
    } catch (problem) {
      showError(adviceOf(problem));
    }
    setState({ isBusy: false, text: "", isBad: false });
  };
  const test = async () => {
    setState({ isBusy: true, text: "Testing…", isBad: false });
    try {
      const { ok, problem, seconds } = await testModel(model.name);
      setState({ isBusy: false, isBad: !ok, text: ok ? `It works: it answered after ${seconds.toFixed(1)} s.` : problem ?? "It did not answer." });
    } catch (problem) {
      setState({ isBusy: false, isBad: true, text: adviceOf(problem) });
    }
  };
  return (
    <article className="card" aria-label={model.name}>
      <header>
        <strong>{model.name}</strong>
        {model.is_default && <span className="badge">Default</span>}
        <small>{aboutOf(model)}</small>
      </header>
      <div className="row-of-buttons">
        <button type="button" className="button" disabled={state.isBusy} onClick={() => void test()}>Test</button>
        {!model.is_default && <button type="button" className="button" disabled={state.isBusy} onClick={() => void run(() => chooseDefaultModel(model.name), `${model.name} is the default now.`)}>Make default</button>}
        {model.managed && <button type="button" className="button is-danger" disabled={state.isBusy} onClick={() => void run(() => deleteModel(model.name), `${model.name} was removed.`)}>Remove</button>}
      </div>
      <p role="status" className={state.isBad ? "form-problem" : "hint"}>{state.text}</p>
    </article>
  );
}

function aboutOf(model: ManagedModel): string {
  if (model.name === "offline") return "Quotes earlier messages, without a model";
  const parts = [model.model, model.base_url, model.has_key ? "key stored" : model.managed ? "no key" : "set where the server is started"];
  return parts.filter((part) => part && part !== model.name).join(" · ");
}

const PROVIDERS: { [kind: string]: { title: string; example: string; needsKey: boolean; url?: string } } = {
  openai: { title: "OpenAI", example: "gpt-5-mini", needsKey: true },
  anthropic: { title: "Anthropic", example: "claude-sonnet-5", needsKey: true },
  local: { title: "OpenAI-compatible (Ollama, vLLM, …)", example: "llama3.2", needsKey: false, url: "http://localhost:11434/v1" },
};

function ModelForm({ models, onSaved, onDone }: { models: ManagedModels; onSaved: () => void; onDone: () => void }) {
  const [kind, setKind] = useState("openai");
  const [model, setModel] = useState("");
  const [key, setKey] = useState("");
  const [url, setUrl] = useState("");
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const provider = PROVIDERS[kind]!;
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    const name = model.trim();
    try {
      await putModel({ name, model: `${kind === "anthropic" ? "anthropic" : "openai"}:${name}`, ...(key && { api_key: key }), ...(url.trim() && { base_url: url.trim() }) });
      onSaved(); // listed at once: one that fails its test can be removed there
      const { ok, problem: reason } = await testModel(name);
      if (!ok) return setProblem(`Saved, but the test failed: ${reason ?? "no answer"}. Correct it and save again, or remove it.`);
      if (models.default === "offline") await chooseDefaultModel(name);
      showMessage(`${name} is connected.`);
      onSaved();
      onDone();
    } catch (error) {
      setProblem(adviceOf(error));
    } finally {
      setBusy(false);
      setKey("");
    }
  };
  return (
    <form className="card" aria-label="Add a model" onSubmit={(event) => void save(event)}>
      <div className="fields">
        <label>Provider
          <select value={kind} onChange={(event) => (setKind(event.target.value), setUrl(PROVIDERS[event.target.value]!.url ?? ""))}>
            {Object.entries(PROVIDERS).map(([value, { title }]) => <option key={value} value={value}>{title}</option>)}
          </select>
        </label>
        <label>Model
          <input type="text" required value={model} placeholder={provider.example} spellCheck={false} autoComplete="off" maxLength={100} pattern="[A-Za-z0-9][A-Za-z0-9._\/:@\-]*" title="Letters, digits, and . _ - / : @" onChange={(event) => setModel(event.target.value)} />
        </label>
        {(provider.url || url) && (
          <label>Address
            <input type="url" value={url} placeholder={provider.url} onChange={(event) => setUrl(event.target.value)} />
            <small>Allowed: {models.hosts.join(", ")}. More with PALAVER_MODEL_HOSTS.</small>
          </label>
        )}
        <label>API key
          <input type="password" required={provider.needsKey} value={key} autoComplete="off" spellCheck={false} placeholder={provider.needsKey ? "" : "if the server asks for one"} onChange={(event) => setKey(event.target.value)} />
          <small>Stored on the server, in a file that only the server can read. It is never shown again and never exported.</small>
        </label>
      </div>
      {problem && <p className="form-problem" role="alert">{problem}</p>}
      <div className="row-of-buttons">
        <button type="submit" className="button is-main" disabled={isBusy}>{isBusy ? "Testing…" : "Save and test"}</button>
        <button type="button" className="button" disabled={isBusy} onClick={onDone}>Cancel</button>
      </div>
    </form>
  );
}
