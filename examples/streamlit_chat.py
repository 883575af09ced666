"""A chat in the browser with Streamlit. It keeps the conversation after a reload, and shows what the model would read.

    pip install palaver streamlit
    streamlit run examples/streamlit_chat.py

No API key is needed: without a model, answers quote earlier turns. To use a model, pass model="openai:gpt-5" to
`palaver.sync.open`.
"""

import streamlit as st

import palaver.sync


@st.cache_resource
def open_store() -> palaver.sync.Store:
    """Open one store for the whole process. Streamlit runs this script again for every click."""
    return palaver.sync.open("sqlite:///streamlit.db", user="ada")


talk = open_store().conversation(st.sidebar.text_input("Conversation", "dinner"))
st.title("A chat that remembers")

if message := st.chat_input("Say something"):
    talk.generate(message)
for turn in talk.history(50):
    st.chat_message(turn.role).write(turn.text)

with st.sidebar.expander("The context that a model would read"):
    context = talk.build_context(2_000)
    st.caption(f"{context.tokens} of 2,000 tokens")
    st.text(context.text)
