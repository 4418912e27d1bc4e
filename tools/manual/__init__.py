"""The pages of the manual, made from the command tree, the layouts and the registry of findings.

``make docs`` writes them to ``man/``; ``rmqtool man`` shows what it wrote. Texts that nothing else knows stand here: in
``examples`` what is run, in ``texts`` what is said around it.
"""
