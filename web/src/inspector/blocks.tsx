/** The token budget as a bar, and the blocks it is spent on. Each block opens to show its reason, turns and text. */

import { useState } from "react";
import type { Block, Explanation, Json } from "../api/types";
import { Scores } from "../memory/scores";
import { Turns } from "../memory/turns";
import { Icon } from "../shell/icons";
import { count, counted, type FileLine, filesOf, KINDS, marksOf, nameOf, percent, scoresOf, slugOf, spanOf, wordsOf } from "./account";

export interface AccountProps {
  explanation: Explanation;
  /** The request that was sent, or would be sent; the text of each block is looked up in it. */
  prompt: Json;
  conversation: string;
  /** Names of files of earlier messages. */
  earlierFiles: string[];
  onTurn: (turn: string) => void;
}

export function Account(props: AccountProps) {
  const { explanation, earlierFiles } = props;
  const { budget, tokens, unit, turns, identical_prefix: same } = explanation;
  return (
    <>
      <p className="spent"><strong>{count(tokens)}</strong> of {count(budget)} {unit}</p>
      <Bar explanation={explanation} />
      <p className="hint">{count(turns.verbatim)} of {counted(turns.total, "message")} in full{coveredText(explanation)}{same !== null && <> · <span className="same">{percent(same)} unchanged since last prompt</span></>}</p>
      <ul className="blocks" aria-label="Blocks of the prompt">
        {explanation.blocks.map((block, at) => <li key={at}><OneBlock {...props} block={block} /></li>)}
        <Marks tokens={marksOf(explanation)} />
      </ul>
      <Files files={filesOf(explanation)} />
      <LeftOut explanation={explanation} earlierFiles={earlierFiles} />
      <Terms explanation={explanation} />
      {explanation.notes.map((note) => <p key={note} className="hint">{note}</p>)}
    </>
  );
}

/** Explains the terms of this panel, and how the prompt was made. */
function Terms({ explanation: { policy, counter, recall } }: { explanation: Explanation }) {
  return (
    <details className="terms">
      <summary>What these terms mean</summary>
      <dl>
        <div><dt>Token</dt><dd>A piece of a word. Models read and bill text in tokens. Counted here by {counter}.</dd></div>
        <div><dt>Budget</dt><dd>The most tokens that a prompt may have. Anything that doesn't fit is summarised, recalled when it matters, or left out.</dd></div>
        <div><dt>Policy</dt><dd>How the budget is divided. This prompt used “{policy}”.</dd></div>
        <div><dt>Recall</dt><dd>A search of earlier messages for what fits yours: {recall ?? "off"}.</dd></div>
        <div><dt>Cached</dt><dd>The unchanged beginning of a prompt. Most providers charge about 10% for the part they have already seen.</dd></div>
      </dl>
    </details>
  );
}

function coveredText({ coverage }: Explanation): string {
  if (!coverage) return "";
  const summarised = coverage.summarised > 0 ? `, ${count(coverage.summarised)} in a summary` : "";
  const missing = coverage.not_covered > 0 ? `, ${count(coverage.not_covered)} left out` : "";
  return summarised + missing;
}

function Bar({ explanation }: { explanation: Explanation }) {
  const { blocks, budget, tokens, unit, identical_prefix: same } = explanation;
  const label = blocks.map((block) => `${nameOf(block.kind)} ${count(block.tokens)}`).join(", ");
  return (
    <div className="budget" role="img" aria-label={`${label}, free ${count(budget - tokens)} ${unit}`}>
      <div className="budget-bar">
        {blocks.map((block, at) => (
          <i key={at} className={`kind-${slugOf(block.kind)}`} title={`${nameOf(block.kind)}: ${count(block.tokens)}`} style={{ flexGrow: block.tokens }} />
        ))}
        <i className="is-free" title={`Free: ${count(budget - tokens)}`} style={{ flexGrow: Math.max(0, budget - tokens) }} />
      </div>
      {same !== null && <i className="budget-same" style={{ width: `${(100 * same * tokens) / budget}%` }} />}
    </div>
  );
}

function OneBlock({ block, prompt, conversation, onTurn }: AccountProps & { block: Block }) {
  const [isOpen, setOpen] = useState(false);
  const turns = block.turn_ids.length;
  return (
    <details className="block" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <i className={`swatch kind-${slugOf(block.kind)}`} aria-hidden="true" />
        <span className="block-name">{nameOf(block.kind)}{turns > 0 && <small> {counted(turns, "message")}</small>}</span>
        <span className="figure">{count(block.tokens)}</span>
        <Icon name="down" size={14} />
      </summary>
      {isOpen && <BlockDetails block={block} prompt={prompt} conversation={conversation} onTurn={onTurn} />}
    </details>
  );
}

function BlockDetails({ block, prompt, conversation, onTurn }: Omit<AccountProps, "explanation" | "earlierFiles"> & { block: Block }) {
  const scores = scoresOf(block);
  const span = spanOf(block.from_seq, block.through_seq);
  const words = block.turn_ids.length ? null : wordsOf(block.kind, prompt);
  const places = block.turn_ids.map((turn) => ({ turn, conversation: scores.get(turn)?.conversation ?? conversation }));
  return (
    <div className="block-inside">
      <p>{KINDS[block.kind]?.about}</p>
      <p className="hint">Why: {block.reason}{span && ` (${span})`}.</p>
      {words && <pre className="words" tabIndex={0}>{words}</pre>}
      {places.length > 0 && (
        <Turns places={places} onTurn={onTurn}>
          {(turn) => scores.has(turn) && <Scores {...scores.get(turn)!} />}
        </Turns>
      )}
    </div>
  );
}

function Marks({ tokens }: { tokens: number }) {
  if (tokens <= 0) return null;
  return (
    <li className="block is-plain">
      <i className="swatch is-marks" aria-hidden="true" />
      <span className="block-name">Formatting overhead</span>
      <span className="figure">{count(tokens)}</span>
    </li>
  );
}

function Files({ files }: { files: FileLine[] }) {
  if (files.length === 0) return null;
  return (
    <section aria-labelledby="prompt-files">
      <h3 id="prompt-files">Files of your message</h3>
      <ul className="left-out">
        {files.map((file) => <li key={file.id}><strong dir="auto">{file.name}</strong> {file.about}</li>)}
      </ul>
    </section>
  );
}

function LeftOut({ explanation, earlierFiles }: Pick<AccountProps, "explanation" | "earlierFiles">) {
  const left = explanation.left_out as unknown as { reason: string; turns: number; from_seq: number | null; through_seq: number | null }[];
  return (
    <section aria-labelledby="left-out">
      <h3 id="left-out">Left out</h3>
      {left.length === 0 ? (
        <p className="hint">Nothing. Every message is in the prompt.</p>
      ) : (
        <ul className="left-out">
          {left.map((one) => (
            <li key={one.reason}><strong>{counted(one.turns, "message")}</strong> {one.reason}{one.from_seq !== null && <small> {spanOf(one.from_seq, one.through_seq)}</small>}</li>
          ))}
        </ul>
      )}
      {earlierFiles.length > 0 && (
        <p className="hint">The text of files of earlier messages is not repeated: <strong dir="auto">{earlierFiles.join(", ")}</strong>. Recall quotes the passages related to your message. A model with tools can read the rest.</p>
      )}
    </section>
  );
}

export function UnchangedShare({ share }: { share: number | null }) {
  return (
    <section aria-labelledby="same">
      <h3 id="same">Reused from the last prompt</h3>
      {share === null ? (
        <p className="hint">This is the first prompt of this conversation, so there is none to compare it with.</p>
      ) : (
        <>
          <meter min={0} max={1} value={share} aria-labelledby="same">{percent(share)}</meter>
          <p><strong>{percent(share)}</strong> of this prompt, from its beginning, was sent the last time too. Most providers charge about 10% for the part they have already seen.</p>
        </>
      )}
    </section>
  );
}
