import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./shell/app";
import { Boundary } from "./shell/boundary";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/history.css";
import "./styles/chat.css";

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <Boundary isWhole>
      <App />
    </Boundary>
  </StrictMode>,
);
