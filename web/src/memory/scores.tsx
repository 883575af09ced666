/** The components of a recall score, with labels. */

const PARTS: { [name: string]: string } = {
  lexical: "words",
  dense: "meaning",
  date: "date",
  neighbour: "next to a match",
  session: "same session",
  speaker: "speaker named",
  length: "length",
  standing: "standing instruction",
  opening: "start of a session",
  role: "said by the assistant",
};
const UNSEEN = 0.005; // components below this are not shown

export function Scores({ score, parts }: { score: number; parts: { [name: string]: number } }) {
  const shown = Object.entries(parts).filter(([, value]) => Math.abs(value) >= UNSEEN);
  return (
    <dl className="scores" aria-label="Score">
      <div className="is-total"><dt>score</dt><dd>{score.toFixed(2)}</dd></div>
      {shown.map(([name, value]) => (
        <div key={name} className={value < 0 ? "is-less" : ""}><dt>{PARTS[name] ?? name}</dt><dd>{signed(value)}</dd></div>
      ))}
    </dl>
  );
}

const signed = (value: number) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
