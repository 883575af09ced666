import { Component, type ReactNode } from "react";
import { ErrorBanner } from "./error-banner";

/** An error boundary for a part of the page. A chunk that cannot be loaded was replaced by a newer build. */
export class Boundary extends Component<{ children: ReactNode; isWhole?: boolean }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override render() {
    if (!this.state.hasFailed) return this.props.children;
    return (
      <ErrorBanner
        isWhole={this.props.isWhole ?? false} title="Something went wrong" text="The server may have been updated. Your messages are stored. Reload the page."
        action="Reload" onAction={() => location.reload()}
      />
    );
  }
}
