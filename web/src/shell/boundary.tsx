import { Component, type ReactNode } from "react";
import { Trouble } from "./trouble";

/** What fails in a part of the page stays there. A part that cannot be loaded was replaced by a newer one. */
export class Boundary extends Component<{ children: ReactNode; isWhole?: boolean }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override render() {
    if (!this.state.hasFailed) return this.props.children;
    return (
      <Trouble
        isWhole={this.props.isWhole ?? false} title="This part failed" text="The server may have a newer version. What you wrote is stored."
        action="Reload" onAction={() => location.reload()}
      />
    );
  }
}
