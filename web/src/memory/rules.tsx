/** The form for a conversation's settings: retention, lifetime, redaction, facts and summaries. */

import { type FormEvent, type ReactNode, useId, useState } from "react";
import { adviceOf } from "../api/client";
import type { Conversation } from "../api/types";
import { updateConversation } from "../api/verbs";
import { momentOf } from "../state/dates";
import { put } from "../state/conversations";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { current } from "../state/current-conversation";
import { showError, showMessage } from "../state/toasts";
import type { TabProps } from "./panel";
import { changesOf, PERSON_MODES, RETENTIONS, type Rules as RulesOf, rulesOf, STRATEGIES, ttlChoices } from "./settings";

const RETENTION: { [name: string]: [title: string, about: string] } = {
  full: ["Keep everything", "Messages stay until someone deletes them."],
  "audit-only": ["Keep fingerprints only", "Once messages are summarised, their text is deleted. A fingerprint stays, so a copy can still be verified."],
  ephemeral: ["Keep summaries only", "Once messages are summarised, their text is deleted permanently, without a fingerprint."],
};
const PERSON: { [mode: string]: string } = {
  "": "Server default", "read-write": "Used here, and added to", read: "Used here, not added to", off: "Off: not used and not added to",
};
const STRATEGY: { [name: string]: [title: string, about: string] } = {
  hierarchical: ["Layered", "Short summaries, and summaries of those. Early history stays available, in less and less detail."],
  rolling: ["Rolling", "A single summary of everything so far, rewritten each time."],
  never: ["Never", "No summaries and no notes. Older messages that don't fit the budget can only be recalled."],
};

export function Rules({ conversation }: TabProps) {
  const info = useStore(current, (one) => one.info);
  if (!info || info.id !== conversation) return <p role="status">Loading…</p>;
  return <Form key={JSON.stringify([info.settings, info.ttl])} info={info} />;
}

function Form({ info }: { info: Conversation }) {
  const [rules, setRules] = useState(() => rulesOf(info));
  const [isBusy, setBusy] = useState(false);
  const policies = useStore(session, (one) => (one.phase === "ready" ? one.settings.policies : null)) ?? [];
  const models = useStore(session, (one) => (one.phase === "ready" ? one.settings.models.names : null)) ?? [];
  const set = (change: Partial<RulesOf>) => setRules((before) => ({ ...before, ...change }));
  const isChanged = Object.keys(changesOf(info, rules)).length > 0;
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      const changed = await updateConversation(info.id, changesOf(info, rules));
      if (current.get().id === changed.id) current.patch({ info: changed });
      put(changed);
      showMessage("Saved.");
    } catch (problem) {
      showError(`Not saved. ${adviceOf(problem)}`);
    }
    setBusy(false);
  };
  return (
    <form className="rules" onSubmit={(event) => void save(event)}>
      <fieldset>
        <legend>Your memory in this chat</legend>
        <label className="field">
          <span>What is remembered about you across chats</span>
          <select aria-label="Your memory in this chat" value={rules.person} onChange={(event) => set({ person: event.target.value })}>
            {PERSON_MODES.map((mode) => <option key={mode} value={mode}>{PERSON[mode]}</option>)}
          </select>
        </label>
      </fieldset>
      <fieldset>
        <legend>What the model is sent</legend>
        <div className="pair">
          <label className="field">
            <span>Policy</span>
            <select value={rules.policy} onChange={(event) => set({ policy: event.target.value })}>
              <option value="">Server default</option>
              {policies.map((name) => <option key={name}>{name}</option>)}
            </select>
          </label>
          <label className="field">
            <span>Budget in tokens</span>
            <input
              type="number" min={100} step={1} placeholder="Server default" value={rules.token_budget || ""}
              onChange={(event) => set({ token_budget: event.target.valueAsNumber || 0 })}
            />
          </label>
        </div>
        <p className="hint">For this chat. The largest prompt, and how it is divided between recent messages, summaries and memory. <i>What the model saw</i> lets you try both.</p>
      </fieldset>
      <Choices legend="What is kept" names={RETENTIONS} about={RETENTION} value={rules.retention} onPick={(retention) => set({ retention })} />
      {rules.retention !== "full" && <p className="warning">Deleted text cannot be restored. Summaries, notes and facts stay.</p>}
      <fieldset>
        <legend>How long</legend>
        <label className="field">
          <span>Delete the conversation after</span>
          <select value={String(rules.ttl)} onChange={(event) => set({ ttl: event.target.value === "null" ? null : Number(event.target.value) })}>
            {ttlChoices(info.ttl).map(([value, name]) => <option key={name} value={String(value)}>{name}</option>)}
          </select>
        </label>
        <p className="hint">
          {rules.ttl === null ? "It stays until someone deletes it." : "Counted from its last change. Then it is deleted with all its files; the log keeps a record without content."}
          {info.expires_at && ` At the moment: ${momentOf(info.expires_at)}.`}
        </p>
      </fieldset>
      <fieldset>
        <legend>Secrets and facts</legend>
        <Switch title="Redact secrets" isOn={rules.redact} onChange={(redact) => set({ redact })}>
          Email addresses, phone and card numbers, passwords and keys become [email], [card] and so on before a new message is stored. Summaries, notes and facts never contain them.
        </Switch>
        <Switch title="Extract facts" isOn={rules.facts} onChange={(facts) => set({ facts })}>
          Who, what and since when, extracted whenever messages are summarised.
        </Switch>
      </fieldset>
      <Choices legend="How older messages are summarised" names={STRATEGIES} about={STRATEGY} value={rules.strategy} onPick={(strategy) => set({ strategy })} />
      {rules.strategy !== "never" && (
        <fieldset>
          <legend className="sr-only">How often</legend>
          <div className="pair">
            <Amount title="After this many messages" value={rules.trigger_turns} onChange={(trigger_turns) => set({ trigger_turns })} />
            <Amount title="or this many tokens" value={rules.trigger_tokens} onChange={(trigger_tokens) => set({ trigger_tokens })} />
          </div>
          <p className="hint">Whichever comes first. The older half is summarised. Messages stay, unless you chose otherwise above.</p>
          {models.length > 0 && (
            <label className="field">
              <span>Summaries are written by</span>
              <select value={rules.summarizer_model ?? ""} onChange={(event) => set({ summarizer_model: event.target.value || null })}>
                <option value="">the conversation's own model</option>
                {models.map((name) => <option key={name}>{name}</option>)}
              </select>
            </label>
          )}
        </fieldset>
      )}
      <div className="row-of-buttons">
        <button type="submit" className="button is-main" disabled={!isChanged || isBusy}>{isBusy ? "Saving…" : "Save"}</button>
        <button type="button" className="button" disabled={!isChanged || isBusy} onClick={() => setRules(rulesOf(info))}>Undo changes</button>
      </div>
    </form>
  );
}

interface ChoicesProps {
  legend: string;
  names: readonly string[];
  about: { [name: string]: [title: string, about: string] };
  value: string;
  onPick: (name: string) => void;
}

function Choices({ legend, names, about, value, onPick }: ChoicesProps) {
  const group = useId();
  return (
    <fieldset>
      <legend>{legend}</legend>
      {names.map((name) => (
        <label key={name} className="choice">
          <input type="radio" name={group} checked={value === name} onChange={() => onPick(name)} />
          <span>{about[name]![0]}<small>{about[name]![1]}</small></span>
        </label>
      ))}
    </fieldset>
  );
}

function Switch({ title, isOn, onChange, children }: { title: string; isOn: boolean; onChange: (isOn: boolean) => void; children: ReactNode }) {
  return (
    <label className="choice">
      <input type="checkbox" checked={isOn} onChange={(event) => onChange(event.target.checked)} />
      <span>{title}<small>{children}</small></span>
    </label>
  );
}

function Amount({ title, value, onChange }: { title: string; value: number; onChange: (value: number) => void }) {
  return (
    <label className="field">
      <span>{title}</span>
      <input type="number" required min={1} step={1} value={value || ""} onChange={(event) => onChange(event.target.valueAsNumber || 0)} />
    </label>
  );
}
