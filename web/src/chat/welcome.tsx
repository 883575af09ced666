/** The first thing that a person sees: what this is, and three ways to begin. */

import { useState } from "react";
import { adviceOf } from "../api/client";
import { navigate } from "../state/route";
import { isOffline, session } from "../state/session";
import { useStore } from "../state/store";
import { showError } from "../state/toasts";
import { createSample } from "./sample";

const IDEAS = [
  "I'm allergic to peanuts, and I cook for two.",
  "We decided to ship the beta on 3 May.",
  "From now on, answer in short sentences.",
];

export function Welcome({ onPick }: { onPick: (text: string) => void }) {
  const offline = useStore(session, (one) => one.phase === "ready" && isOffline(one.settings));
  return (
    <div className="welcome">
      <img src="/favicon.svg" alt="" width="52" height="52" />
      <h1>What's on your mind?</h1>
      <p>Palaver remembers your conversations and shows you exactly what the model was sent.</p>
      <ul aria-label="Ideas">
        {IDEAS.map((idea) => <li key={idea}><button type="button" className="button" onClick={() => onPick(idea)}>{idea}</button></li>)}
      </ul>
      {offline && <SampleButton />}
    </div>
  );
}

function SampleButton() {
  const [isBusy, setBusy] = useState(false);
  const open = async () => {
    setBusy(true);
    try {
      navigate(await createSample());
    } catch (problem) {
      showError(`The sample could not be created. ${adviceOf(problem)}`);
      setBusy(false);
    }
  };
  return <button type="button" className="link" disabled={isBusy} onClick={() => void open()}>{isBusy ? "Making it…" : "Or look at a sample conversation"}</button>;
}
