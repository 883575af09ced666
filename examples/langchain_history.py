"""LangChain: a conversation as message history, and recall as a retriever.

pip install "palaver[langchain]"
python examples/langchain_history.py
"""

from langchain_core.messages import AIMessage, HumanMessage

import palaver
from palaver.adapters.langchain import PalaverChatMessageHistory, PalaverRetriever

with palaver.sync.open("sqlite:///langchain.db") as store:
    history = PalaverChatMessageHistory(store, "support/42")
    history.add_messages([HumanMessage("My dog is called Rex."), AIMessage("Noted.")])
    print([message.content for message in history.messages])
    for document in PalaverRetriever(store=store, conversation="support/42", k=1).invoke("Which dog?"):
        print(document.page_content, document.metadata["role"])
