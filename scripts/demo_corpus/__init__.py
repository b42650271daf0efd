"""An English-German corpus made from a small grammar, for the demo.

Every sentence is built in both languages at once, and every English construction has exactly one German one,
so that a model that has learned word order, case and agreement can translate new sentences without a fault.
Reading order: number_words, times, nouns, noun_phrases, verbs, lexicon, predicates, clauses, random_phrases,
random_clauses, sentences, facts, corpus.
"""
